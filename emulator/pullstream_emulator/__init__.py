"""A broker that implements google.pubsub.v1 in pure Python, for tests, demos and local work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .testing import Emulator

__all__ = ["Emulator"]


def __getattr__(name: str) -> object:
    # Imported late: pytest imports `pullstream_emulator.pytest_plugin` in every test session, and
    # must not load gRPC for it.
    if name == "Emulator":
        from .testing import Emulator

        return Emulator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
