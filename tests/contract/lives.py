"""Brokers one after the other on one data directory, spoken to over one face."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from emulator import Emulator
from protocol.clock import ManualClock
from tests.contract.conftest import open_face
from tests.contract.face import Face


class Lives:
    """The present broker, its client, and how to come to the next."""

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
        """End the broker in order, and start another."""
        self.end()
        self._begin()
        return self.face

    def crash(self) -> Face:
        """Start a broker on the files as they are at this moment, as after a kill."""
        crashed = self._directory.with_name(f"{self._directory.name}-crashed")
        shutil.copytree(self._directory, crashed)
        self.end()
        self._directory = crashed
        self._begin()
        return self.face
