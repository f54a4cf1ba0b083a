"""The check of a cluster's executors, with a context that stands for Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException

from pullstream.spark.errors import FailureCause, IngestError
from pullstream.spark.ingest import executors
from pullstream.spark.ingest.executors import check_executors

pytestmark = pytest.mark.spark


def context(collect: Callable[[], list[str]], executors: int = 1) -> Any:
    """Return a context whose check calls `collect`."""
    one = MagicMock()
    one.defaultParallelism, one.pythonExec = 2, "/opt/python"
    one.parallelize.return_value.flatMap.return_value.collect = collect
    one._jsc.sc().getExecutorMemoryStatus().size.return_value = executors + 1
    one.getConf().get.return_value = "1g"
    return one


def test_the_wait_for_executors_is_told_once_and_ends_when_the_job_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executors, "_SLOW", 0.0)
    stop, cancelled, told = threading.Event(), threading.Event(), []

    def wait() -> list[str]:
        cancelled.wait(20)
        raise PySparkException("cancelled")

    spark = context(wait, executors=0)
    spark.cancelJobGroup.side_effect = lambda group: cancelled.set()

    def look(text: str) -> None:
        told.append(text)
        threading.Timer(0.3, stop.set).start()

    check_executors(spark, ["pyarrow"], stop, look)
    assert cancelled.is_set()
    (text,) = told
    assert "the cluster has no free cores" in text
    assert "spark.executor.memory is 1g" in text


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        ('java.io.IOException: Cannot run program "/x": error=2', "cannot start Python; set PYSPA"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has", "has another version than the driver's"),
        ("Caused by: java.lang.Error: no space", "cannot run a task: java.lang.Error: no space"),
    ],
)
def test_an_error_of_the_executors_is_one_sentence(problem: str, sentence: str) -> None:
    def fail() -> list[str]:
        raise PySparkException(problem)

    with pytest.raises(IngestError) as failed:
        check_executors(context(fail), ["pyarrow"], threading.Event(), print)
    assert sentence in str(failed.value)
    assert len(str(failed.value).splitlines()) == 1
    assert failed.value.cause is FailureCause.SPARK


def test_packages_that_any_executor_lacks_are_named_once() -> None:
    with pytest.raises(IngestError, match="lack the Python packages obstore and pyarrow; install"):
        check_executors(
            context(lambda: ["pyarrow", "obstore", "pyarrow"]), [], threading.Event(), print
        )


def test_executors_that_lack_nothing_pass_the_check() -> None:
    check_executors(context(list), ["pyarrow"], threading.Event(), print)
