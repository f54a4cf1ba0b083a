"""Measures the cost of the pytest fixtures: `python -m tests.bench.fixture_client shared`.

Prints the figures as JSON. The cost is the time of the set-up and the teardown of tests with the
fixture, less the time of tests without one. The tests' own calls do not count. The real time is the
median of the tests, because other programs disturb some of them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

import pytest

MODES = ("shared", "own")
TESTS = Path(__file__).with_name("fixture_tests.py")


class Meter:
    """A plugin that adds up the seconds of set-up and teardown, by test function and test.

    Attributes:
        wall: Seconds of real time.
        cpu: Seconds of the process, so of all its threads.
    """

    def __init__(self, count: int) -> None:
        self.wall: defaultdict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.cpu: defaultdict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._count = count

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        metafunc.parametrize("number", range(self._count))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Function) -> Iterator[None]:
        yield from self._measured(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Function) -> Iterator[None]:
        yield from self._measured(item)

    def _measured(self, item: pytest.Function) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall[item.originalname][item.name] += time.perf_counter() - wall
        self.cpu[item.originalname][item.name] += time.process_time() - cpu


def measure(mode: str, count: int) -> dict[str, float]:
    began = time.process_time()
    importlib.import_module("pullstream_emulator.pytest_plugin")
    imported = time.process_time() - began
    meter, test = Meter(count), f"test_{mode}"
    arguments = ["-n0", "-pno:cacheprovider", f"{TESTS}::{test}", f"{TESTS}::test_none"]
    with contextlib.redirect_stdout(sys.stderr):
        failed = pytest.main(arguments, plugins=[meter])
    if failed:
        raise SystemExit(int(failed))
    wall = {name: times.values() for name, times in meter.wall.items()}
    cpu = {name: times.values() for name, times in meter.cpu.items()}
    return {
        "fixture_ms": (median(wall[test]) - median(wall["test_none"])) * 1e3,
        "fixture_cpu_ms": (mean(cpu[test]) - mean(cpu["test_none"])) * 1e3,
        "plugin_ms": imported * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--tests", type=int, default=1000)
    options = parser.parse_args()
    print(json.dumps(measure(options.mode, options.tests)))


if __name__ == "__main__":
    main()
