"""The task of one receiver in a Spark job.

This module is pickled by value: an executor without pullstream must say so in one line. So no
function here may refer to another module of pullstream.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pyspark import cloudpickle

T = TypeVar("T")

# Begins the error of a task whose receiver has failed, which is then in the error of the job.
FAILED = "the receiver has failed: "


def task_of(settings: str, stopped: str) -> Callable[[Iterable[T]], Iterator[T]]:
    """Return the function of a task, which runs one receiver to its end and returns its rows.

    It returns no rows if the driver has stopped the receiver.

    The receiver is a process whose input is a pipe of the worker. Spark kills the worker of a
    cancelled task, and an executor that loses its driver ends its workers. In each case the pipe is
    closed, and the receiver ends and returns its messages.

    Args:
        settings: One line for the program's input.
        stopped: The output of a receiver that the driver has stopped.
    """

    def receive(rows: Iterable[T]) -> Iterator[T]:
        import os
        import socket
        import subprocess
        from importlib.util import find_spec

        taken = list(rows)
        host, python = socket.gethostname(), sys.executable
        if find_spec("pullstream") is None:
            raise RuntimeError(
                f"{FAILED}ImportError: {python} on {host} has no pullstream; install "
                "pullstream[spark] for the Python of the executors, or set PYSPARK_PYTHON"
            )
        # The program needs the paths that Spark has added, such as files of --py-files.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with subprocess.Popen(
            [python, "-m", "pullstream.spark.receiver_processes.program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            # A signal to the process group of the executor ends the worker first.
            start_new_session=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(settings.encode() + b"\n")
            process.stdin.flush()
            output = process.stdout.read().decode(errors="replace").strip()
        if process.returncode < 0:
            # Another try may succeed, as after the kill of a worker.
            raise RuntimeError(f"a receiver on {host} was killed by signal {-process.returncode}")
        if process.returncode:
            reason = output or f"OSError: the program has ended with {process.returncode}"
            raise RuntimeError(f"{FAILED}{reason} (on {host})")
        if output != stopped:
            yield from taken

    return receive


# The copy in PySpark has no type annotations.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
