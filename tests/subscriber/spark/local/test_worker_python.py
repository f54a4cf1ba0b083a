"""The Python of Spark's workers: its path, its choice, and its silence at a normal end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
import pytest

from pullstream.spark.local.source_process import RUNNER
from pullstream.spark.local.worker_daemon import Traces
from pullstream.spark.local.worker_python import worker_settings
from tests.completed import run_command


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder, with a space in its name; no Python is chosen."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    # Set and deleted, so that the variable is restored.
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    return tmp_path / "a cache"


def test_spark_workers_import_the_installed_pyspark_instead_of_sparks_archive(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's interpreter and the rest of its path stay."""
    assert worker_settings() == {"spark.python.daemon.module": "pullstream_worker_daemon"}
    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    monkeypatch.setenv("PYTHONPATH", str(archive))
    script = (
        "import sys, pyspark, pullstream_worker_daemon\n"
        "print(pyspark.__file__, sys.prefix, *sys.path, sep='\\n')\n"
        "assert 'pullstream' not in sys.modules"
    )
    program = os.environ["PYSPARK_PYTHON"]
    place, prefix, *path = run_command([program, "-c", script], check=True).stdout.splitlines()
    assert Path(place).resolve() == Path(pyspark.__file__).resolve()
    assert prefix == sys.prefix
    assert str(archive) in path
    # A second session finds the same program.
    assert worker_settings()
    assert os.environ["PYSPARK_PYTHON"] == program


def test_the_source_process_of_spark_ends_without_a_trace_if_spark_has_given_up(
    cache: Path, tmp_path: Path
) -> None:
    """Spark closes the socket after 10 s. Other arguments run as they are."""
    worker_settings()
    program = os.environ["PYSPARK_PYTHON"]
    environ = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "gone.sock"),
    }
    result = run_command([program, "-m", RUNNER], env=environ)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "")
    assert "CANNOT_OPEN_SOCKET" in run_command([sys.executable, "-m", RUNNER], env=environ).stderr
    assert "nothing" in run_command([program, "-m", "nothing"]).stderr


def test_spark_workers_keep_the_python_that_the_user_has_chosen(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Python may not have pullstream's daemon, so there are no settings."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert worker_settings() == {}


def test_spark_workers_use_the_drivers_python_if_the_cache_cannot_be_written(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers still have the driver's packages."""
    cache.write_text("a file in place of the folder")
    assert worker_settings() == {}
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(("error", "is_shown"), [(BrokenPipeError(), False), (KeyError(), True)])
def test_the_worker_daemon_prints_no_trace_of_a_connection_that_spark_has_closed(
    capsys: pytest.CaptureFixture[str], error: Exception, is_shown: bool
) -> None:
    """Other errors are printed as before."""
    try:
        raise error
    except type(error):
        Traces.print_exc()
    assert ("Traceback" in capsys.readouterr().err) is is_shown


def test_the_worker_program_replaces_the_daemon_that_spark_starts_for_a_data_source(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark starts its own daemon for some workers, also with the setting."""
    # The interpreter shows its arguments.
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    worker_settings()
    program = os.environ["PYSPARK_PYTHON"]
    for given, used in (
        ("-m pyspark.daemon pyspark.sql.x y", "-m pullstream_worker_daemon pyspark.sql.x y"),
        ("-m pyspark.worker", "-m pyspark.worker"),
    ):
        assert run_command([program, *given.split()], check=True).stdout.strip() == used
