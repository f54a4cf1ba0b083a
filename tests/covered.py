"""`make coverage`: how much of the central folders their own tests cover, at least 95 % of each.

    python -m tests.covered -k lease

Arguments are passed to pytest. A folder for each processor is measured at the same time. The exit
status is 1 if a folder is below the floor in pyproject.toml.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "build" / "coverage"

# Each folder, and the patterns of the tests that must cover it. The slowest folder comes first.
FOLDERS = {
    "emulator/pullstream_emulator/engine": ("tests/emulator/engine",),
    "subscriber/pullstream/streaming": ("tests/subscriber/streaming",),
    "subscriber/pullstream/publisher": ("tests/subscriber/publisher",),
    "subscriber/pullstream/fetch": ("tests/subscriber/fetch",),
    "subscriber/pullstream/logs/follow": (
        "tests/subscriber/logs/follow",
        "tests/contract/test_follow*.py",
    ),
}


def own_tests(folder: str) -> list[str]:
    """Return the paths of the tests of a folder.

    Raises:
        FileNotFoundError: A pattern matches nothing. Without paths, pytest would run all tests.
    """
    found = {pattern: sorted(map(str, ROOT.glob(pattern))) for pattern in FOLDERS[folder]}
    if empty := [pattern for pattern, paths in found.items() if not paths]:
        raise FileNotFoundError(f"there are no tests {', '.join(empty)} of {folder}")
    return [path for paths in found.values() for path in paths]


def measure(arguments: Sequence[str], folder: str) -> tuple[str, bool]:
    """Return the output for a folder, and whether the coverage is enough.

    Failed tests are only in the output, because tracing makes every test about twice as slow.
    `make test` fails for them.
    """
    tests = own_tests(folder)
    options = ["-q", "--numprocesses", "0", f"--cov={folder}", "--cov-report="]
    tested = _run(folder, "pytest", *options, *tests, *arguments)
    report = _run(folder, "coverage", "report", "--skip-covered")
    # pytest's statuses: all passed, some failed.
    is_enough = tested.returncode in (0, 1) and report.returncode == 0
    return f"== {folder}\n{tested.stdout}{report.stdout}", is_enough


def _run(folder: str, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    data = DATA / folder.replace("/", "-")
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "COVERAGE_FILE": str(data)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def main(arguments: Sequence[str]) -> int:
    """Measure all folders, and print each result when it is there."""
    DATA.mkdir(parents=True, exist_ok=True)
    is_enough = True
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for output, one in pool.map(partial(measure, arguments), FOLDERS):
            print(output, flush=True)
            is_enough &= one
    return 0 if is_enough else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
