"""One client, measured in its own process: messages per second, and the cost.

    python -m tests.bench.client pullstream localhost:PORT

Prints its figures as one JSON object. The clock starts when every subscription has received, so
imports and connecting do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .peers import PEERS, Counter, Stopwatch

SUBSCRIPTION = "projects/bench/subscriptions/bench-{}"

# In seconds: the time from the first message to the start of the clock, the longest wait for a
# first or next message, and the wait for messages after the last.
WARM_UP = 1.0
TIMEOUT = 60.0
AFTERMATH = 0.5
# The seconds between two looks at the progress.
LOOK_EVERY = 0.005

Figures = dict[str, float]


@dataclass(frozen=True)
class Process:
    """The current resources of a process. Threads include gRPC's C threads."""

    mebibytes: float
    peak_mebibytes: float
    threads: int

    @classmethod
    def now(cls) -> Process:
        return cls.of("self")

    @classmethod
    def of(cls, pid: int | str) -> Process:
        """Return the resources of a process. Other processes need Linux."""
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            # Only Linux reports all values. Elsewhere the peak replaces the current value.
            unit = 1024 * 1024 if sys.platform == "darwin" else 1024
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
            return cls(peak, peak, threading.active_count())
        # Not ru_maxrss, which on Linux starts at the peak of the parent process.
        found = dict(re.findall(r"^(VmRSS|VmHWM|Threads):\s+(\d+)", status, re.MULTILINE))
        return cls(int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024, int(found["Threads"]))


def total(counters: Sequence[Counter]) -> int:
    return sum(counter.read() for counter in counters)


def first_count(counters: Sequence[Counter]) -> int:
    """Wait until each counter has counted something, and return the total by then."""
    deadline = time.monotonic() + TIMEOUT
    silent = list(counters)
    while silent := [counter for counter in silent if not counter.read()]:
        if time.monotonic() > deadline:
            sys.exit(f"{len(silent)} of {len(counters)} subscriptions received nothing")
        time.sleep(LOOK_EVERY)
    return total(counters)


def warm_up(counters: Sequence[Counter]) -> None:
    first_count(counters)
    time.sleep(WARM_UP)


def wait_for_progress(seconds: float, is_enough: Callable[[], bool]) -> None:
    """Wait this time, and then until there is something to measure, as a busy machine may need."""
    time.sleep(seconds)
    deadline = time.monotonic() + TIMEOUT
    while not is_enough():
        if time.monotonic() > deadline:
            sys.exit("after the first messages none came")
        time.sleep(LOOK_EVERY)


def rate(counters: Sequence[Counter], arguments: argparse.Namespace) -> Figures:
    """Measure messages per second for the requested number of seconds."""
    warm_up(counters)
    before, cpu, began = total(counters), time.process_time(), time.monotonic()
    wait_for_progress(arguments.seconds, lambda: total(counters) > before)
    messages = total(counters) - before
    return {
        "rate": messages / (time.monotonic() - began),
        "cpu_micros": (time.process_time() - cpu) / messages * 1e6,
    }


def drain(counters: Sequence[Counter], arguments: argparse.Namespace) -> Figures:
    """Measure the time for a number of messages, the memory on the way, and the exact count."""
    first = first_count(counters)
    count, cpu, began = first, time.process_time(), time.monotonic()
    moved = began
    memory: list[tuple[int, float]] = []
    while count < arguments.messages and time.monotonic() < moved + TIMEOUT:
        time.sleep(LOOK_EVERY)
        before, count = count, total(counters)
        if count > before:
            moved = time.monotonic()
            memory.append((count, Process.now().mebibytes))
    cpu = time.process_time() - cpu
    counted = count - first
    if not counted:
        sys.exit("there were too few messages to measure")
    time.sleep(AFTERMATH)
    return {
        "rate": counted / (moved - began),
        "cpu_micros": cpu / counted * 1e6,
        "miscounted": abs(total(counters) - arguments.messages),
        **growth(memory, arguments.messages),
    }


def growth(memory: Sequence[tuple[int, float]], messages: int) -> Figures:
    """Return the memory in the last tenth of the messages divided by the second tenth."""

    def samples(tenth: int) -> list[float]:
        low, high = messages * (tenth - 1) / 10, messages * tenth / 10
        return [mebibytes for count, mebibytes in memory if low <= count <= high]

    early, late = samples(2), samples(10)
    if not early or not late:
        return {}
    return {"growth": statistics.fmean(late) / statistics.fmean(early)}


def latency(counters: Sequence[Counter], arguments: argparse.Namespace) -> Figures:
    """Measure the time from publishing to the callback, in milliseconds."""
    (stopwatch,) = counters
    assert isinstance(stopwatch, Stopwatch)
    warm_up(counters)
    # Messages from before the start of this client have waited, so they do not count.
    late = len(stopwatch.ages)
    wait_for_progress(arguments.seconds, lambda: len(stopwatch.ages) >= late + 2)
    ages = stopwatch.ages[late:]
    percentiles = statistics.quantiles(ages, n=100, method="inclusive")
    return {"p50_ms": percentiles[49] * 1e3, "p99_ms": percentiles[98] * 1e3}


def idle(counters: Sequence[Counter], arguments: argparse.Namespace) -> Figures:
    """Measure the CPU use without messages, in percent of a core per subscription."""
    time.sleep(WARM_UP * 3)
    cpu, began = time.process_time(), time.monotonic()
    time.sleep(arguments.seconds)
    share = (time.process_time() - cpu) / (time.monotonic() - began)
    return {"idle_percent": share * 100 / len(counters)}


MODES: dict[str, Callable[[Sequence[Counter], argparse.Namespace], Figures]] = {
    "rate": rate,
    "drain": drain,
    "latency": latency,
    "idle": idle,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("endpoint")
    parser.add_argument("--mode", choices=MODES, default="rate")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--messages", type=int, default=0, help="how many to drain")
    parser.add_argument("--subscriptions", type=int, default=1)
    parser.add_argument("--max-messages", type=int, default=1000)
    arguments = parser.parse_args()
    subscribe = PEERS[arguments.peer](arguments.endpoint)
    new = Stopwatch if arguments.mode == "latency" else Counter
    counters = [new() for _ in range(arguments.subscriptions)]
    before = Process.now()
    for number, counter in enumerate(counters):
        subscribe(SUBSCRIPTION.format(number), arguments.max_messages, counter)
    figures = MODES[arguments.mode](counters, arguments)
    after = Process.now()
    figures |= {
        "peak_mebibytes": after.peak_mebibytes,
        "threads": (after.threads - before.threads) / len(counters),
        "mebibytes": (after.mebibytes - before.mebibytes) / len(counters),
    }
    print(json.dumps(figures), flush=True)
    # Without a shutdown, whose cost is not measured here.
    os._exit(0)


if __name__ == "__main__":
    main()
