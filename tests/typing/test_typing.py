"""Users' programs are checked against the installed project: right ones pass, wrong ones do not."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.optional_tools import missing

from .checkers import Finding, build_wheel, install, mypy, pyright, pyright_strict, run

HERE = Path(__file__).parent

# Type checkers read a whole installation, and the first time they know nothing about it.
pytestmark = pytest.mark.slow

# Modules that users have no reason to import: the commands, and what runs a subscription.
INTERNAL = ("subscriber.cli.", "subscriber.streaming.", "subscriber.worker.")
# Modules that extend PySpark's classes, where there is no PySpark: it needs Python 3.11.
WITHOUT_BASES = ("subscriber.spark.",) if importlib.util.find_spec("pyspark") is None else ()
# Symbols without a type that are left, with the reason.
UNTYPED = {
    # Gone as soon as its `except` block ends.
    *(f"subscriber.telemetry.{name}.error" for name in ("opentelemetry", "prometheus")),
}


@dataclass(frozen=True)
class Installation:
    """An environment with the project's wheel, and a folder for users' programs beside it."""

    python: Path
    folder: Path

    def place(self, name: str) -> Path:
        """A copy of one of the programs here, where nothing else is that could be imported."""
        folder = self.folder / Path(name).stem
        folder.mkdir(exist_ok=True)
        return Path(shutil.copy(HERE / name, folder))

    def check(self, checker: str, name: str) -> list[Finding]:
        if checker == "pyright":
            need_pyright()
            return pyright_strict(self.python, self.place(name))
        need("mypy")
        return mypy(self.python, self.place(name), self.folder / "cache")


def need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        missing(module, f"{module} is not installed: pip install 'pullstream[check]'")


def need_pyright() -> None:
    need("pyright")
    if run(sys.executable, "-m", "pyright", "--version").returncode != 0:
        missing("pyright", "pyright does not run: it needs Node.js, and could not get it")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installation")
    return Installation(install(build_wheel(folder), folder / "environment"), folder)


def expected_mistakes(checker: str) -> list[Finding]:
    """What the comments in mistakes.py announce."""
    found = []
    for number, line in enumerate((HERE / "mistakes.py").read_text().splitlines(), start=1):
        if match := re.search(rf"# .*\b{checker}: ([\w, -]+)", line):
            found += [Finding(number, rule.strip()) for rule in match[1].split(",")]
    return sorted(found)


@pytest.mark.parametrize("package", ["subscriber", "emulator"])
def test_the_program_uses_every_public_name(package: str) -> None:
    """So that each of them is checked."""
    tree = ast.parse((HERE / "program.py").read_text())
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(importlib.import_module(package).__all__) - used == set()


def test_the_program_runs_on_the_installed_project(installation: Installation) -> None:
    """The wheel is complete, and what is checked is no fiction."""
    result = run(str(installation.python), str(installation.place("program.py")))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_right_program_passes(checker: str, installation: Installation) -> None:
    """In the checker's strict mode there is nothing to say about it."""
    assert installation.check(checker, "program.py") == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_each_mistake_is_refused(checker: str, installation: Installation) -> None:
    """On its own line and for its own reason; and nothing else is."""
    assert installation.check(checker, "mistakes.py") == expected_mistakes(checker)


def test_every_public_symbol_has_a_type(installation: Installation) -> None:
    """None is left for a checker to infer, which each does in its own way."""
    need_pyright()
    report = pyright(installation.python, "--verifytypes", "subscriber", "--ignoreexternal")
    symbols = [
        symbol
        for symbol in report["typeCompleteness"]["symbols"]
        if symbol["isExported"] and not symbol["name"].startswith((*INTERNAL, *WITHOUT_BASES))
    ]
    assert "subscriber.client.SubscriberClient.subscribe" in {symbol["name"] for symbol in symbols}
    # A class that only has such a member has no diagnostics of its own.
    untyped = {
        symbol["name"] for symbol in symbols if not symbol["isTypeKnown"] and symbol["diagnostics"]
    }
    assert untyped - UNTYPED == set()
