"""Engines that count the rows of our tables without our libraries."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.spark_matrix.ids import NO_SPARK
from tests.spark_matrix.run import READERS, ROOT, environment

# polars reads Delta and Iceberg tables with the help of their libraries.
_POLARS = ("polars", "deltalake", "pyiceberg")


class Unavailable(Exception):
    """An engine cannot be fetched, so it has no opinion of the table."""


class Unreadable(Exception):
    """An engine cannot read the table."""


def ids_by_spark(format: str, folder: Path) -> list[int]:
    """Return the ids that Spark finds with the format's own jars.

    Raises:
        Unavailable: PySpark or the jars cannot be fetched.
        Unreadable: Spark cannot read the table.
    """
    return _ids(_python(format), "spark", format, folder)


def ids_by_polars(format: str, folder: Path) -> list[int]:
    """Return the ids that polars finds.

    Raises:
        Unavailable: polars cannot be fetched.
        Unreadable: polars cannot read the table.
    """
    python = _python(format)
    # Takes a second and no network if they are there.
    installed = _run(python, "-m", "pip", "install", "--quiet", *_POLARS)
    if installed.returncode:
        raise Unavailable(f"cannot install {', '.join(_POLARS)}: {_end(installed)}")
    return _ids(python, "polars", format, folder)


def _python(format: str) -> Path:
    try:
        return environment(READERS[format])
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"cannot install PySpark {READERS[format]}: {error}") from error


def _ids(python: Path, engine: str, format: str, folder: Path) -> list[int]:
    done = _run(python, "-m", "tests.spark_matrix.ids", engine, format, folder)
    if done.returncode == NO_SPARK:
        raise Unavailable(f"Spark does not start with the jars of {format}: {_end(done)}")
    if done.returncode:
        raise Unreadable(f"{engine}: {_end(done)}")
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    return found


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _end(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or done.stdout)[-1500:].strip()
