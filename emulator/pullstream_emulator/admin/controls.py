"""The parts of a running broker that its administration acts on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullstream_emulator.engine import Engine
    from pullstream_emulator.faults import Faults
    from pullstream_protocol.clock import AdvancingClock


@dataclass(frozen=True)
class Controls:
    """The controls of one broker, for use on the thread that owns the engine.

    Attributes:
        engine: Its engine.
        clock: Its clock.
        faults: Its faults.
    """

    engine: Engine
    clock: AdvancingClock
    faults: Faults
