"""The import of pullstream.spark: its needs, and its errors without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import pullstream.spark
from tests.completed import run_command
from tests.typing.checkers import build_wheel, install

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Nothing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Nothing())
"""


def run(code: str, python: str | Path = sys.executable, cwd: Path | None = None) -> str:
    """Run a program, and return its output or the last line of its error."""
    done = run_command([python, "-c", code], cwd=cwd)
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def test_importing_pullstream_spark_loads_neither_spark_nor_arrow() -> None:
    """Neither Spark nor Arrow is loaded before a name is used."""
    code = "import sys, pullstream.spark; print({'pyspark', 'pyarrow'} & sys.modules.keys())"
    assert run(code) == "set()"


def test_pullstream_spark_reports_a_python_version_that_is_too_old() -> None:
    """The rest of the SDK works with 3.10."""
    code = "import sys, pullstream; sys.version_info = (3, 10, 9); import pullstream.spark"
    error = "ImportError: pullstream.spark needs Python 3.11 or later, as PySpark 4.2 does; "
    assert run(code) == error + "this is 3.10"


@pytest.mark.parametrize("module", ["pyspark", "pyarrow"])
def test_using_pullstream_spark_without_pyspark_raises_an_error_with_the_extra_to_install(
    module: str,
) -> None:
    """The error has the command that installs it."""
    code = WITHOUT.format(module=module) + "import pullstream.spark as s; s.BatchRead; s.register"
    assert "pip install 'pullstream[spark]'" in run(code)


def test_every_name_exported_by_pullstream_spark_can_be_imported() -> None:
    """No other names exist."""
    assert [
        name for name in pullstream.spark.__all__ if not callable(getattr(pullstream.spark, name))
    ] == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        pullstream.spark.nothing  # noqa: B018


@pytest.mark.slow
def test_spark_finds_the_data_source_of_an_installed_pullstream_wheel(tmp_path: Path) -> None:
    """Spark finds data sources by top-level modules with a certain name and a DefaultSource."""
    python = install(build_wheel(tmp_path), tmp_path / "python")
    code = (
        "from importlib import import_module; from pkgutil import iter_modules;"
        "print([import_module(m.name).DefaultSource.name() for m in iter_modules()"
        " if m.name.startswith('pyspark_')])"
    )
    assert run(code, python, cwd=tmp_path) == "['pubsub']"
