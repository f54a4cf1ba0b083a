"""A dimension of growth: its measurement at one size, and the exponents of several sizes.

The work of a dimension is a generator. The part before its first `yield` is the preparation. The
part up to `yield DONE` is measured: the CPU time of the process, and its memory. The part after it
ends the preparation.

Each further `yield` is a place where another call can run. So the longest CPU time before one of
them is the time for which another call waits. If the first `yield` has a function, the work runs on
other threads. Then the function is called again and again meanwhile. The longest of its calls
counts, by the CPU time of the process during the call: the real time depends on the load of the
machine. So waits for a disk do not count here; `tests/bench/growth_broker.py` has real times.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tests.bench.client import Process


class End(Enum):
    """The end of the measured work."""

    DONE = "done"


DONE = End.DONE

Probe: TypeAlias = Callable[[], object]
# Starts a broker, and returns its address.
Serve: TypeAlias = Callable[[], AbstractContextManager[str]]
Work: TypeAlias = Callable[[int, Serve], Iterator[Probe | End | None]]

# In seconds, between two calls of a probe.
PROBE_EVERY = 0.005

# Growth of memory below this is not told from the memory of the allocator, in bytes.
SMALL = 3 << 20


@dataclass(frozen=True)
class Dimension:
    """One thing that users have more and more of.

    Attributes:
        side: The measured process: "SDK" or "broker".
        name: The growing things, and the work on them.
        work: The preparation and the measured work at a size.
        sizes: The measured sizes.
        quick: Small sizes, which show that the dimension runs.
        longest_wait: The longest time for which another call may wait, in seconds; None: no limit.
        exponent: The highest allowed exponent of CPU time and memory.
    """

    side: str
    name: str
    work: Work
    sizes: tuple[int, ...]
    quick: tuple[int, ...] = (4, 8)
    longest_wait: float | None = 0.2
    exponent: float = 1.1


@dataclass(frozen=True)
class Cost:
    """The cost at one size: seconds of CPU, bytes of memory, and the longest wait in seconds."""

    cpu: float
    kept: float
    wait: float


class Waits:
    """The longest call of a probe, on a separate thread."""

    def __init__(self, probe: Probe) -> None:
        self.longest = 0.0
        self._probe = probe
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Waits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PROBE_EVERY):
            begun = time.process_time()
            self._probe()
            self.longest = max(self.longest, time.process_time() - begun)


def measure(dimension: Dimension, size: int, serve: Serve) -> Cost:
    """Prepare and do the work of a dimension in this process, and return its cost."""
    before = Process.now().mebibytes
    work = dimension.work(size, serve)
    probe = next(work)
    prepared = Process.now().mebibytes
    try:
        if callable(probe):
            with Waits(probe) as waits:
                cpu, _ = _run(work)
            wait = waits.longest
        else:
            cpu, wait = _run(work)
        kept = max(prepared, Process.now().mebibytes) - before
    finally:
        work.close()  # type: ignore[attr-defined]
    return Cost(cpu, kept * (1 << 20), wait)


def _run(work: Iterator[Probe | End | None]) -> tuple[float, float]:
    """Do the measured part of a work. Return its CPU time, and the one of its longest piece."""
    longest, begun = 0.0, time.process_time()
    last = begun
    for step in work:
        if step is DONE:
            break
        longest = max(longest, time.process_time() - last)
        last = time.process_time()
    return time.process_time() - begun, longest


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of the costs on logarithmic scales, by least squares."""
    xs = [math.log(size) for size in sizes]
    ys = [math.log(max(cost, 1e-6)) for cost in costs]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    return rise / sum((a - x) ** 2 for a in xs)


@dataclass(frozen=True)
class Growth:
    """The costs of a dimension at its sizes."""

    dimension: Dimension
    costs: dict[int, Cost]

    @property
    def cpu_exponent(self) -> float:
        """The exponent of CPU time."""
        return exponent(list(self.costs), [cost.cpu for cost in self.costs.values()])

    @property
    def memory_exponent(self) -> float | None:
        """The exponent of memory; None if it grows too little to be measured."""
        kept = [cost.kept for cost in self.costs.values()]
        return exponent(list(self.costs), kept) if min(kept) > SMALL else None

    @property
    def bytes_each(self) -> float | None:
        """Bytes for each unit, from the first to the last size; None: too few to measure."""
        (first, least), *_, (last, most) = self.costs.items()
        grown = most.kept - least.kept
        return grown / (last - first) if grown > SMALL else None

    @property
    def wait(self) -> float:
        """The longest wait of another call, in seconds."""
        return max(cost.wait for cost in self.costs.values())

    def faults(self) -> list[str]:
        """Return a text for each exceeded limit of the dimension."""
        limit, found = self.dimension.exponent, []
        if self.cpu_exponent > limit:
            found.append(f"CPU grows with exponent {self.cpu_exponent:.2f}, allowed {limit}")
        if (self.memory_exponent or 0) > limit:
            found.append(f"memory grows with exponent {self.memory_exponent:.2f}, allowed {limit}")
        longest = self.dimension.longest_wait
        if longest is not None and self.wait > longest:
            found.append(f"another call waits {self.wait:.2f} s, allowed {longest} s")
        return found
