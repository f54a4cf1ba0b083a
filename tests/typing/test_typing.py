"""Type checkers accept correct programs and refuse wrong ones, with the installed project."""

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

# Type checkers read a whole installation, the first time without a cache.
pytestmark = pytest.mark.slow

# Modules that users need not import: the commands, and the internals of a subscription.
INTERNAL = ("pullstream.cli.", "pullstream.streaming.", "pullstream.worker.")
# Modules that extend PySpark's classes, where PySpark is missing: it needs Python 3.11.
WITHOUT_BASES = ("pullstream.spark.",) if importlib.util.find_spec("pyspark") is None else ()
# The remaining symbols without a type, with the reason.
UNTYPED = {
    # Deleted at the end of its `except` block.
    *(
        f"pullstream.telemetry.{name}.error"
        for name in ("opentelemetry", "prometheus", "publish_tracing")
    ),
}


@dataclass(frozen=True)
class Installation:
    """An environment with the project's wheel, and a folder for users' programs."""

    python: Path
    folder: Path

    def place(self, name: str) -> Path:
        """Copy one of the programs to a folder where nothing else can be imported."""
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
    """Return the mistakes that the comments in mistakes.py announce."""
    found = []
    for number, line in enumerate((HERE / "mistakes.py").read_text().splitlines(), start=1):
        if match := re.search(rf"# .*\b{checker}: ([\w, -]+)", line):
            found += [Finding(number, rule.strip()) for rule in match[1].split(",")]
    return sorted(found)


@pytest.mark.parametrize("package", ["pullstream", "pullstream_emulator"])
def test_the_program_for_type_checkers_uses_every_public_name_of_pullstream(package: str) -> None:
    """Each public name is thus checked."""
    tree = ast.parse((HERE / "program.py").read_text())
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(importlib.import_module(package).__all__) - used == set()


def test_the_program_for_type_checkers_runs_with_the_installed_packages(
    installation: Installation,
) -> None:
    """The wheel is complete, and the checked types match the code."""
    result = run(str(installation.python), str(installation.place("program.py")))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_report_nothing_for_a_correct_program_that_uses_pullstream(
    checker: str, installation: Installation
) -> None:
    """The checker's strict mode has no messages."""
    assert installation.check(checker, "program.py") == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_report_each_wrong_use_of_pullstream_in_a_program(
    checker: str, installation: Installation
) -> None:
    """Each mistake is reported on its own line with its own rule, and nothing else is reported."""
    assert installation.check(checker, "mistakes.py") == expected_mistakes(checker)


def test_every_public_symbol_of_pullstream_has_a_declared_type(installation: Installation) -> None:
    """Without a type, each checker would infer its own."""
    need_pyright()
    report = pyright(installation.python, "--verifytypes", "pullstream", "--ignoreexternal")
    symbols = [
        symbol
        for symbol in report["typeCompleteness"]["symbols"]
        if symbol["isExported"] and not symbol["name"].startswith((*INTERNAL, *WITHOUT_BASES))
    ]
    assert "pullstream.client.SubscriberClient.subscribe" in {symbol["name"] for symbol in symbols}
    # A class with an untyped member has no own diagnostics.
    untyped = {
        symbol["name"] for symbol in symbols if not symbol["isTypeKnown"] and symbol["diagnostics"]
    }
    assert untyped - UNTYPED == set()
