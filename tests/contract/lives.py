"""A sequence of brokers on one data directory, used over one protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.contract.conftest import open_face
from tests.contract.face import Face
from tests.emulator.crash import copy_running


class Lives:
    """The present broker, its client, and the ways to replace it by the next one."""

    def __init__(self, directory: Path, face: str, **settings: Any) -> None:
        self._directory = directory
        self._face = face
        self._settings = settings
        self._clock = ManualClock()
        self._begin()

    def _begin(self) -> None:
        self.emulator = Emulator(
            clock=self._clock, data_dir=self._directory, rest=True, **self._settings
        ).start()
        self.face: Face = open_face(self._face, self.emulator)

    def end(self) -> None:
        self.face.close()
        self.emulator.stop()

    def restart(self) -> Face:
        """Stop the broker in an orderly way, and start another."""
        self.end()
        self._begin()
        return self.face

    def crash(self) -> Face:
        """Start a broker on a copy of the files at this moment, as after a kill."""
        crashed = self._directory.with_name(f"{self._directory.name}-crashed")
        copy_running(self._directory, crashed)
        self.end()
        self._directory = crashed
        self._begin()
        return self.face
