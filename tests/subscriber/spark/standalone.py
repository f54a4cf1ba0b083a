"""Spark's own cluster: a master and workers as processes of this machine.

Each worker has its working folder and a little memory. Workers may see a folder empty, as if they
were on other machines.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

from pullstream.spark.local.java import ensure_java
from tests.quick_java import quick_java
from tests.subscriber.spark.processes import descendants

_HOST = "127.0.0.1"
_START = 30.0


@contextmanager
def standalone_cluster(
    folder: Path, *, workers: int = 1, cores: int = 1, hidden: Path | None = None
) -> Iterator[str]:
    """Run a master and workers during the block, and yield the master's URL.

    Args:
        folder: A folder for the logs and the workers.
        workers: Number of workers.
        cores: Number of cores of each worker.
        hidden: A folder that workers and executors see empty. Needs `can_hide`.
    """
    port, ui = _free_port(), _free_port()
    with ExitStack() as running:
        master = ["master.Master", "--host", _HOST, "--port", str(port), "--webui-port", str(ui)]
        running.enter_context(_process(folder / "master", master))
        url = f"spark://{_HOST}:{port}"
        for number in range(workers):
            home = folder / f"worker{number}"
            work = ["worker.Worker", "--host", _HOST, "--webui-port", "0", "--cores", str(cores)]
            work += ["--memory", "1g", "--work-dir", str(home / "work"), url]
            running.enter_context(_process(home, work, hidden))
        _wait_for_workers(ui, workers)
        yield url


def can_hide() -> bool:
    """Return whether this user may make a mount namespace, in which a folder is another one."""
    if shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([*_apart_from(Path(folder)), "true"], check=False).returncode == 0


def _apart_from(hidden: Path) -> list[str]:
    """Return the start of a command line that runs a program with an empty folder."""
    script = 'mount -t tmpfs none "$0" && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(hidden)]


@contextmanager
def _process(home: Path, arguments: Sequence[str], hidden: Path | None = None) -> Iterator[None]:
    home.mkdir(parents=True)
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    variables = {
        **os.environ,
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": quick_java(),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_LOCAL_DIRS": str(home),
    }
    ensure_java(variables)
    name, *others = arguments
    apart = [] if hidden is None else _apart_from(hidden)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*apart, str(program), f"org.apache.spark.deploy.{name}", *others],
            cwd=home,
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        # Executors of a worker that is killed would go on.
        started = descendants(process.pid)
        process.terminate()
        process.wait(20)
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def _wait_for_workers(ui: int, number: int) -> None:
    tick = threading.Event()
    for _ in range(int(_START / 0.1)):
        page = f"http://{_HOST}:{ui}/json/"
        with suppress(OSError, ValueError), urllib.request.urlopen(page, timeout=5) as answer:
            if json.load(answer)["aliveworkers"] == number:
                return
        tick.wait(0.1)
    raise TimeoutError(f"not all of {number} workers have started")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((_HOST, 0))
        return int(one.getsockname()[1])
