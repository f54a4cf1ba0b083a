"""What can be done to a running broker besides using it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator.engine import Engine
    from emulator.faults import Faults
    from emulator.history import History
    from protocol.clock import AdvancingClock


@dataclass(frozen=True)
class Controls:
    """One broker's engine, clock, faults and history; used on the thread that owns the engine."""

    engine: Engine
    clock: AdvancingClock
    faults: Faults
    history: History
