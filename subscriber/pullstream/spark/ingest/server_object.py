"""Calls of an object's methods in a Python process on the driver's machine, over Spark Connect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StringType, StructField, StructType

from pullstream.spark.errors import FailureCause, IngestError, ingest_error
from pullstream.spark.local.java_error import reason_of

from .failures import SLOW_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWER = "answer"
_MISSING = "No module named 'pullstream"
# Texts of the client's error when no server has answered.
_UNANSWERED = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "RETRIES_EXCEEDED")

# Number of times that a method is called whose process is not ready within Spark's 10 s.
_TRIES = 6


class ServerGone(IngestError):
    """The server of Spark Connect does not answer any more."""


class ServerObject:
    """An object on the server's machine, which needs pullstream.

    Spark asks a data source for its columns in a Python process on the driver's machine. This
    source calls a method, and the result is in the metadata of its only column. No task runs, so
    the executors need not see the driver's files. Spark may call a method twice.

    Args:
        spark: A session of Spark Connect.
        name: A name that the session does not have yet.
        target: The object. It is pickled, so each call gets a new one.
    """

    def __init__(self, spark: SparkSession, name: str, target: object) -> None:
        class Source(DataSource):
            @classmethod
            def name(cls) -> str:
                return name

            def schema(self) -> StructType:
                answer = _answer(target, self.options["method"], self.options["arguments"])
                return StructType([StructField(_ANSWER, StringType(), True, {_ANSWER: answer})])

        spark.dataSource.register(Source)
        self._spark = spark
        self._name = name

    def call(self, method: str, **arguments: Any) -> Any:
        """Call a method, and return its result. Arguments and result are values of JSON.

        Raises:
            IngestError: The method has raised it, or the server cannot call the method.
            ServerGone: The server does not answer.
            ValueError: The method has raised it.
        """
        answer = json.loads(self._response(method, json.dumps(arguments)))
        if "problem" not in answer:
            return answer["result"]
        if answer["isValue"]:
            raise ValueError(answer["problem"])
        raise ingest_error(answer["problem"], FailureCause(answer["cause"]))

    def _response(self, method: str, arguments: str) -> str:
        source = self._spark.read.format(self._name).option("method", method)
        source = source.option("arguments", arguments)
        for left in reversed(range(_TRIES)):
            try:
                columns = source.load().schema
            except PySparkException as error:
                if not left or SLOW_START not in str(error):
                    raise _failure(error) from error
            else:
                break
        response: str = columns[0].metadata[_ANSWER]
        return response


def _failure(error: PySparkException) -> IngestError:
    text = str(error)
    if any(one in text for one in _UNANSWERED):
        gone = ServerGone(
            f"the server of Spark Connect does not answer: {reason_of(error)}. Its query may run "
            "on; start the job again when the server can be reached"
        )
        gone.cause = FailureCause.SPARK
        return gone
    if _MISSING in text:
        problem = (
            "the server of Spark Connect lacks pullstream; install it there for the Python that "
            "PYSPARK_PYTHON names"
        )
    elif SLOW_START in text:
        problem = (
            "the server of Spark Connect has failed: a Python process needs more than the 10 s "
            "that Spark waits; give the driver more processor time"
        )
    else:
        problem = f"the server of Spark Connect has failed: {reason_of(error)}"
    return ingest_error(problem, FailureCause.SPARK)


def _answer(target: object, method: str, arguments: str) -> str:
    try:
        return json.dumps({"result": getattr(target, method)(**json.loads(arguments))})
    except (IngestError, ValueError) as error:
        cause = getattr(error, "cause", None) or FailureCause.OTHER
        is_value = isinstance(error, ValueError)
        answer = {"problem": str(error), "cause": cause.value, "isValue": is_value}
        return json.dumps(answer)
