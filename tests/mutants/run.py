"""`make mutants`: mutants of a module are run against its own tests, which should fail.

    python -m tests.mutants.run streaming/failed_key.py --seed 7 --count 60

Each mutant is a copy of the SDK in which one token of the module is changed. Without modules on
the command line, all in `SUITES` are tried. Exits with 1 if fewer than `--at-least` percent of the
mutants fail a test. The mutants in `EQUIVALENT` are left out.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import Phase, settings

import pullstream_emulator.pytest_plugin  # noqa: F401 (loaded once, before the forks)
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import Mutant, mutants

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "subscriber" / "pullstream"
TESTS = ROOT / "tests" / "subscriber" / "streaming"

_HOLD = ("test_failed_key.py", "test_messages_on_hold.py", "test_order_model.py", "test_growth.py")

# The tests of each module, the quickest first.
SUITES = {
    "streaming/failed_key.py": _HOLD,
    "streaming/key_messages.py": _HOLD,
    "streaming/sorted_keys.py": ("test_sorted_keys.py", *_HOLD),
    "streaming/messages_on_hold.py": _HOLD,
}

# Seconds. A mutant that takes longer loops.
TIMEOUT = 300.0


class Trial(NamedTuple):
    """A mutant of a module."""

    module: str
    mutant: Mutant

    def __str__(self) -> str:
        mutant = self.mutant
        return f"{self.module}:{mutant.line}: {mutant.before}\n    -> {mutant.after}"


class _WithoutShrinking:
    """A plugin of pytest: one failing example is enough, and each run tries the same examples."""

    def pytest_collection(self) -> None:
        once = settings(phases=[Phase.explicit, Phase.generate], derandomize=True)
        settings.register_profile("mutants", once)
        settings.load_profile("mutants")


def run_tests(copy: Path, suite: Sequence[str]) -> None:
    """Run tests with the SDK in `copy`, and exit with 0 if all pass."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pullstream"]:
        del sys.modules[name]
    paths = f"pythonpath={copy} . protocol emulator"
    options = ["-x", "-q", "-n0", "-pno:cacheprovider", "--assert=plain", "-o", paths]
    result = pytest.main([*options, *(str(TESTS / name) for name in suite)], [_WithoutShrinking()])
    os._exit(int(result))


def passes(copy: Path, module: str) -> bool:
    """Return whether the tests of a module pass with the SDK in `copy`."""
    forks = multiprocessing.get_context("fork")
    child = forks.Process(target=run_tests, args=(copy, SUITES[module]))
    child.start()
    child.join(TIMEOUT)
    if child.is_alive():
        child.kill()
        child.join()
    return child.exitcode == 0


def survives(trial: Trial, copy: Path) -> bool:
    """Return whether all tests pass with a mutant."""
    module = copy / "pullstream" / trial.module
    original = module.read_text("ascii")
    module.write_text(trial.mutant.source, "ascii")
    try:
        return passes(copy, trial.module)
    finally:
        module.write_text(original, "ascii")


def trials(modules: Sequence[str], seed: int, count: int | None) -> list[Trial]:
    """Return mutants of the modules, chosen at random if there are more than `count`."""
    found = [
        Trial(module, mutant)
        for module in modules
        for mutant in mutants((PACKAGE / module).read_text("ascii"))
        if (module, mutant.before, mutant.after) not in EQUIVALENT
    ]
    if count is None or count >= len(found):
        return found
    return random.Random(seed).sample(found, count)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="default: all in SUITES")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="number of mutants; default: all")
    parser.add_argument("--at-least", type=float, default=95.0, metavar="PERCENT")
    options = parser.parse_args()
    sys.dont_write_bytecode = True
    chosen = trials(options.modules or list(SUITES), options.seed, options.count)
    survivors = []
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(PACKAGE, copy / "pullstream", ignore=shutil.ignore_patterns("__pycache__"))
        for module in sorted({trial.module for trial in chosen}):
            if not passes(copy, module):
                sys.exit(f"the tests of {module} fail without a mutant")
        for number, trial in enumerate(chosen, 1):
            if survives(trial, copy):
                survivors.append(trial)
                print(f"survived: {trial}", flush=True)
            print(f"{number} of {len(chosen)}", end="\r", flush=True)
    killed = len(chosen) - len(survivors)
    share = 100 * killed / max(len(chosen), 1)
    print(f"{killed} of {len(chosen)} mutants killed ({share:.0f} %), seed {options.seed}")
    return int(share < options.at_least)


if __name__ == "__main__":
    sys.exit(main())
