"""The settings of `local_session`, except for the choice of Java."""

from __future__ import annotations

import os
import signal
import stat
import sys
import tempfile
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from pullstream.runtime.stop_signals import handled_by
from pullstream.spark import local_session, register
from pullstream.spark.local import session_builder
from pullstream.spark.local.session_builder import remote_of, session_for
from tests.completed import run_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_builder_reuses_a_running_spark_session_on_every_thread(
    spark: SparkSession,
) -> None:
    """Spark has an active session per thread. Another's session keeps its settings."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    found: list[SparkSession] = []

    def work() -> None:
        found.append(local_session("local[7]", config={"spark.sql.shuffle.partitions": "3"}))

    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [spark]
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.conf.get("spark.sql.shuffle.partitions") == "1"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("context", "setting", "is_local", "cores"),
    [
        ("local[8]", "spark://host:7077", True, 7),
        ("spark://host:7077", "local[2]", False, 8),
        # Spark Connect has no context.
        (None, "local[2]", True, 1),
        (None, None, False, 1),
    ],
)
def test_the_running_spark_context_decides_whether_executors_count_as_local_and_how_many_cores(
    context: str | None, setting: str | None, is_local: bool, cores: int
) -> None:
    """A setting does not count, because a session may have it from elsewhere.

    A local session's source takes one of its cores.
    """
    session = Mock()
    session.conf.get.return_value = setting
    if context is None:
        del session.sparkContext
    else:
        session.sparkContext.master = context
        session.sparkContext.defaultParallelism = 8
    register(session)
    ((source,),) = session.dataSource.register.call_args_list[0][:1]
    assert (source.files_are_shared, source.cores) == (is_local, cores)


def test_a_local_spark_session_uses_unix_sockets_for_python_workers(spark: SparkSession) -> None:
    """With TCP each task waits for 40 ms. Only this user may access the sockets' folder."""
    folder = Path(spark.conf.get("spark.python.unix.domain.socket.dir") or "")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert spark.sparkContext.parallelize([1, 2], 1).map(lambda one: one + 1).collect() == [2, 3]
    assert any(stat.S_ISSOCK(path.stat().st_mode) for path in folder.glob(".*.sock"))


@pytest.mark.parametrize(("name", "used"), [("t", True), ("t" * 100, False), ("töpfe", False)])
def test_a_local_spark_session_uses_no_unix_sockets_if_the_socket_paths_are_unusable(
    name: str, used: bool
) -> None:
    """Paths that are too long for the system or that Java may change disable the sockets."""
    with tempfile.TemporaryDirectory(prefix="ps-", dir="/tmp") as short:
        folder = Path(short, name)
        folder.mkdir()
        # The parent looks while the folder is in use. Its child process has ended before.
        script = (
            "import os, sys; from pullstream.spark.local.unix_sockets import unix_sockets\n"
            "found = unix_sockets()\n"
            "assert found == unix_sockets()\n"
            "child = os.fork()\n"
            "if not child: sys.exit()\n"
            "os.waitpid(child, 0)\n"
            "print(bool(found), *map(os.listdir, filter(os.path.isdir, found.values())))"
        )
        result = run_command(
            [sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(folder)}, check=True
        )
        # An empty folder, while it is in use.
        assert result.stdout.strip() == ("True []" if used else "False")
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("is_running", [False, True])
def test_a_pullstream_command_stops_the_spark_session_that_it_started(
    monkeypatch: pytest.MonkeyPatch, is_running: bool, fails: bool
) -> None:
    """The session also stops after an error, which is raised even if Java has died.

    A session of another owner continues.
    """
    session = Mock()
    session.stop.side_effect = ConnectionRefusedError
    module = "pullstream.spark.local.session_builder"
    monkeypatch.setattr(f"{module}.running_session", lambda: session if is_running else None)
    monkeypatch.setattr(f"{module}._session", lambda *_, **__: session)
    with (
        pytest.raises(ValueError, match="mine") if fails else nullcontext(),
        session_for(app_name="test", config={}) as found,
    ):
        assert found is session
        if fails:
            raise ValueError("mine")
    assert session.stop.called is not is_running


@pytest.mark.parametrize("submitted", [False, True])
def test_the_spark_session_of_a_command_does_not_note_the_line_of_each_expression(
    monkeypatch: pytest.MonkeyPatch, submitted: bool
) -> None:
    """PySpark needs most of the time of an expression for it. A user's own session keeps it."""
    from pyspark.sql import SparkSession

    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    else:
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session_builder, "running_session", lambda: None)
    monkeypatch.setattr(session_builder, "_start_quietly", lambda settings: None)
    monkeypatch.setattr(session_builder, "register", lambda session: None)
    noted = {}
    for has_log in (False, True):
        builder = Mock()
        for method in (builder.appName, builder.master, builder.config):
            method.return_value = builder
        monkeypatch.setattr(SparkSession, "builder", builder)
        session_builder._session("local[1]", "test", {}, has_log=has_log)
        settings = dict(call.args for call in builder.config.call_args_list)
        noted[has_log] = settings.get("spark.python.sql.dataFrameDebugging.enabled")
    assert noted == {False: "false", True: None}


def test_ctrl_c_waits_for_the_start_of_spark_and_keeps_its_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's handler fails with a trace at the start, and a Java that is left then does not end.

    The handler is called at once, and only its KeyboardInterrupt waits.
    """
    called: list[str] = []

    def interrupt(number: int, frame: object) -> None:
        called.append("handler")
        raise KeyboardInterrupt

    def start(conf: object) -> None:
        signal.raise_signal(signal.SIGINT)
        called.append("started")
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    monkeypatch.setattr(session_builder, "_start_java_apart", lambda settings: None)
    monkeypatch.setattr("pyspark.SparkContext.getOrCreate", start)
    with handled_by(interrupt):
        with pytest.raises(KeyboardInterrupt):
            session_builder._start_quietly({})
        assert signal.getsignal(signal.SIGINT) is interrupt
    assert called == ["handler", "started"]


def test_a_spark_session_of_others_without_unix_sockets_is_noted_once_for_each_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for application, setting in (("a", "false"), ("a", "false"), ("b", "true"), ("c", "false")):
        session = Mock()
        session.sparkContext.master = "local[2]"
        session.sparkContext.defaultParallelism = 2
        session.sparkContext.applicationId = f"{application} of this test"
        session.conf.get.return_value = setting
        register(session)
    assert [one.message.split(",")[0] for one in caplog.records] == [
        "the Spark session lacks spark.python.unix.domain.socket.enabled=true"
    ] * 2


@pytest.mark.parametrize(
    ("variable", "master", "setting", "url"),
    [
        (None, None, None, None),
        (None, "spark://host:1", None, None),
        ("sc://host", None, None, "sc://host"),
        (None, "sc://host", None, "sc://host"),
        (None, None, "sc://host", "sc://host"),
        ("sc://host", "sc://other", None, "sc://other"),
    ],
)
def test_the_master_a_setting_or_a_variable_asks_for_a_session_of_spark_connect(
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    master: str | None,
    setting: str | None,
    url: str | None,
) -> None:
    """The argument of the command counts more than the environment."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if variable is not None:
        monkeypatch.setenv("SPARK_REMOTE", variable)
    assert remote_of(master, {"spark.remote": setting} if setting else {}) == url
