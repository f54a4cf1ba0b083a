"""Runs a module in a process whose wall clock jumps by an hour at each SIGUSR1, forth and back.

    python -m tests.jepsen.wall_clock tests.jepsen.program publisher ...

The machine's clock stays as it is: only `time.time` of this process is replaced, from which all
packages of the project take the wall time.
"""

from __future__ import annotations

import runpy
import signal
import sys
import time
from itertools import cycle
from types import FrameType

JUMP = 3600.0

_real_time = time.time
_offsets = cycle((JUMP, 0.0, -JUMP, 0.0))
_offset = 0.0


def _now() -> float:
    return _real_time() + _offset


def _jump(number: int, frame: FrameType | None) -> None:
    global _offset
    _offset = next(_offsets)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _jump)
    time.time = _now
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
