"""The reasons of Spark's errors: the root cause, with all lines of its text."""

from __future__ import annotations

from unittest.mock import Mock, patch

import pytest
from py4j.protocol import Py4JJavaError

from pullstream.spark.local.java_error import reason_of

DELTA = """\
An error occurred while calling o93.save.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.sql.Dataset.save(Dataset.scala:12)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.sql.AnalysisException: [DELTA_CONFIGURE_SPARK_SESSION] This Delta \
operation requires
the SparkSession to be configured with the extension and the catalog.
Set spark.sql.extensions to io.delta.sql.DeltaSparkSessionExtension.
\tat org.apache.spark.sql.delta.DeltaErrors.configure(DeltaErrors.scala:1)
\t... 12 more
"""

JDBC = """\
org.postgresql.util.PSQLException: ERROR: duplicate key value violates unique constraint "orders"
  Detail: Key (id)=(7) already exists.
  Hint: use another key.

SQL state: 23505
"""

PYTHON = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Error from Python worker:
Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 12, in main
    raise ValueError(
        ^^^^^^^^^^^
pullstream.spark.errors.SpoolError: the spool is full
Remedy: raise maxSpoolBytes
or lower maxMessagesPerTrigger

\tat org.apache.spark.api.python.Runner.run(Runner.scala:1)
During handling of the above exception, another exception occurred:
Traceback (most recent call last):
BrokenPipeError: [Errno 32] Broken pipe
=== Streaming Query ===
Identifier: x
"""

CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'a'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 2, in g
pullstream_protocol.errors.NotFound: 404 Resource not found
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            DELTA,
            "org.apache.spark.sql.AnalysisException: [DELTA_CONFIGURE_SPARK_SESSION] This Delta "
            "operation requires\n"
            "the SparkSession to be configured with the extension and the catalog.\n"
            "Set spark.sql.extensions to io.delta.sql.DeltaSparkSessionExtension.",
        ),
        (JDBC, JDBC.partition("\n\n")[0]),
        (
            PYTHON,
            "SpoolError: the spool is full\n"
            "Remedy: raise maxSpoolBytes\n"
            "or lower maxMessagesPerTrigger",
        ),
        (CHAINED, "NotFound: 404 Resource not found"),
        (
            "Traceback (most recent call last):\n  File 'a.py'\nKeyboardInterrupt\n",
            "KeyboardInterrupt",
        ),
        (
            "\n  [PARSE] one line  \nand its remedy\n\nJVM stacktrace:\n",
            "[PARSE] one line\nand its remedy",
        ),
        ("", "RuntimeError('')"),
        (
            "a.B: x\n\tat c\nCaused by: d.E: y\n\tat f\nCaused by: g.H: root\n\t... 3 more",
            "g.H: root",
        ),
        (
            "[CODE] Failed: Traceback (most recent call last):\n  File a\n    b()\n"
            "pullstream_protocol.errors.NotFound: 404 Resource not found (resource=x).\n"
            " SQLSTATE: 38000\n"
            "=== Streaming Query ===\nIdentifier: x [id = y]\n",
            "NotFound: 404 Resource not found (resource=x).",
        ),
        (
            "Failed: Traceback (most recent call last):\n  File a\nValueError: option 'x'\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File b\nUnboundLocalError: reader\n",
            "ValueError: option 'x'",
        ),
    ],
)
def test_the_reason_of_a_spark_error_has_all_lines_up_to_a_blank_line_or_a_stack_frame(
    text: str, reason: str
) -> None:
    """The remedy is often in a later line than the problem."""
    assert reason_of(RuntimeError(text)) == reason


def test_the_reason_of_a_java_error_is_the_text_of_its_root_cause() -> None:
    """A driver's error has no trace in its text, but causes as objects."""
    root = Mock()
    root.getCause.return_value = None
    root.getMessage.return_value = "no such table\nCreate it first\n\nmore"
    error = Mock()
    error.getCause.return_value = root
    wrapped = Py4JJavaError.__new__(Py4JJavaError)
    wrapped.java_exception = error
    with patch.object(Py4JJavaError, "__str__", lambda self: "An error occurred"):
        assert reason_of(wrapped) == "no such table\nCreate it first"
