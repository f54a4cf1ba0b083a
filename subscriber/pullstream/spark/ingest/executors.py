"""Check that a cluster's executors can run the tasks of a job, before its first batch."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pullstream.runtime.stop_signals import StopFlag
from pullstream.spark.errors import FailureCause, IngestError, ingest_error
from pullstream.spark.local.java_error import reason_of
from pullstream_protocol.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark import SparkContext

# Seconds between two looks at the check, and after which missing executors are reported.
_LOOK = 0.1
_SLOW = 10.0

# The parts of Spark's errors for a Python program that does not start, and for another version.
_NO_PROGRAM = ("Cannot run program", "Error from python worker", "Python worker exited")
_OTHER_VERSION = "PYTHON_VERSION_MISMATCH"


def check_executors(
    context: SparkContext,
    modules: Iterable[str],
    stop: StopFlag,
    tell: Callable[[str], None],
) -> None:
    """Run a task for each core, and wait for its end.

    Args:
        context: The session's context.
        modules: The modules that tasks import.
        stop: Ends the wait.
        tell: Called with a sentence if no executor has started for ten seconds.

    Raises:
        IngestError: Executors have no Python, another version of it, or lack a module.
    """
    check = _Check(context, list(modules))
    began = SYSTEM_CLOCK.monotonic()
    is_told = False
    while not check.ended.wait(_LOOK):
        if stop.wait(0):
            check.cancel()
            return
        is_slow = SYSTEM_CLOCK.monotonic() - began > _SLOW
        if is_slow and not is_told and _executors(context) == 0:
            tell(
                f"no executor has started for {_SLOW:g} s: the cluster has no free cores, or no "
                f"worker with the memory of an executor (spark.executor.memory is "
                f"{context.getConf().get('spark.executor.memory', '1g')})"
            )
            is_told = True
    if check.failure is not None:
        raise _explained(check.failure, context.pythonExec) from check.failure
    if check.missing:
        names = " and ".join(sorted(check.missing))
        raise ingest_error(
            f"the executors lack the Python packages {names}; install them there for the Python "
            f"that PYSPARK_PYTHON names ({context.pythonExec})",
            FailureCause.SPARK,
        )


class _Check:
    """A job of one short task for each core, on a separate thread."""

    def __init__(self, context: SparkContext, modules: list[str]) -> None:
        self.ended = threading.Event()
        self.missing: set[str] = set()
        self.failure: Exception | None = None
        self._context = context
        self._modules = modules
        self._group = f"pullstream-{uuid.uuid4()}"
        threading.Thread(target=self._run, name="pullstream-executors", daemon=True).start()

    def cancel(self) -> None:
        """Cancel the job."""
        self._context.cancelJobGroup(self._group)

    def _run(self) -> None:
        context, cores = self._context, self._context.defaultParallelism
        try:
            context.setJobGroup(self._group, "pullstream: check of the executors")
            tasks = context.parallelize(range(cores), cores)
            self.missing = set(tasks.flatMap(_missing_of(self._modules)).collect())
        except (PySparkException, Py4JError) as error:
            self.failure = error
        finally:
            self.ended.set()


def _missing_of(modules: list[str]) -> Callable[[int], Iterator[str]]:
    """Return the function of a task. It is nested, so that executors need not have this module."""

    def missing(number: int) -> Iterator[str]:
        from importlib.util import find_spec

        return (name for name in modules if find_spec(name) is None)

    return missing


def _executors(context: SparkContext) -> int:
    """Return the number of executors; the driver has an entry, too."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _explained(error: Exception, python: str) -> IngestError:
    text = str(error)
    version = ".".join(map(str, sys.version_info[:2]))
    need = (
        f"set PYSPARK_PYTHON to a Python {version} with pyarrow, which the driver and all "
        f"executors have at this path (now: {python})"
    )
    if _OTHER_VERSION in text:
        return ingest_error(
            f"the Python of the executors has another version than the driver's; {need}",
            FailureCause.SPARK,
        )
    if any(part in text for part in _NO_PROGRAM):
        return ingest_error(f"the executors cannot start Python; {need}", FailureCause.SPARK)
    return ingest_error(f"the executors cannot run a task: {reason_of(error)}", FailureCause.SPARK)
