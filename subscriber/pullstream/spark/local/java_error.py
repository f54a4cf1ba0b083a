"""One-line reasons of Spark's errors, which contain whole traces of Java and Python."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError

_TRACEBACK = "Traceback (most recent call last):"
# The last line of a Python traceback; the lines before it are indented.
_RAISED = re.compile(r"(?:[a-z_]\w*\.)*([A-Za-z_]\w*): (.*)")
# Text that may follow it: an error of Spark's own code while handling it, and the query.
_HANDLING = "During handling of the above exception"
_QUERY = "=== Streaming Query ==="
_CAUSED_BY = "Caused by: "


def reason_of(error: BaseException) -> str:
    """Return the root cause of `error`: the Python error if any, otherwise the Java error."""
    text = str(error)
    found = _of_python(text) or _of_java(text)
    if found is None and isinstance(error, Py4JJavaError):
        found = _root_message(error)
    return found or _first_line(error)


def _of_python(text: str) -> str | None:
    trace = text.partition(_TRACEBACK)[2].partition(_HANDLING)[0].partition(_QUERY)[0]
    raised = [match for line in trace.splitlines() if (match := _RAISED.fullmatch(line))]
    return f"{raised[-1][1]}: {raised[-1][2]}" if raised else None


def _of_java(text: str) -> str | None:
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.removeprefix(_CAUSED_BY) for line in lines if line.startswith(_CAUSED_BY)]
    return causes[-1] if causes else None


def _root_message(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getMessage() or cause)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
