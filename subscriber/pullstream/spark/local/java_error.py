"""Reasons of Spark's errors, which contain whole traces of Java and Python, or a whole RPC."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from py4j.protocol import Py4JJavaError

_TRACEBACK = "Traceback (most recent call last):"
# The line after the frames of a Python traceback. The frames are indented.
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(: .*)?")
# Text that may follow it: an error of Spark's own code while handling it, and the query.
_HANDLING = "During handling of the above exception"
_QUERY = "=== Streaming Query ==="
_CAUSED_BY = "Caused by: "
# The error of a client of Spark Connect whose server does not answer.
_RPC = re.compile(r'status = StatusCode\.(\w+)\s+details = "(.*)"')
# Lines after a message: a frame of a Java trace, the number of left out frames, Spark's SQLSTATE.
_AFTER = re.compile(r"\tat .*|\s*\.\.\. \d+ (?:more|common frames omitted)|(?:\s*SQLSTATE: \w{5})+")


def reason_of(error: BaseException) -> str:
    """Return the root cause of `error`: the Python error if any, otherwise the Java error.

    The text of an error ends at its first blank line or stack frame. It may have several lines,
    because the remedy is often not in the first one.
    """
    text = str(error)
    found = _of_python(text) or _of_java(text) or _of_rpc(text)
    if found is None and isinstance(error, Py4JJavaError):
        found = _root_message(error)
    return found or _message(text.splitlines()) or repr(error)


def _of_python(text: str) -> str | None:
    after = text.partition(_TRACEBACK)[2]
    # The last of several tracebacks that name each other as direct causes.
    last = after.partition(_HANDLING)[0].partition(_QUERY)[0].rpartition(_TRACEBACK)[2]
    lines = iter(last.splitlines())
    for line in lines:
        if raised := _RAISED.fullmatch(line):
            return _message([f"{raised[1]}{raised[2] or ''}", *lines])
    return None


def _of_java(text: str) -> str | None:
    lines = text.splitlines()
    causes = [at for at, line in enumerate(lines) if line.strip().startswith(_CAUSED_BY)]
    if not causes:
        return None
    first, *others = lines[causes[-1] :]
    return _message([first.strip().removeprefix(_CAUSED_BY), *others])


def _of_rpc(text: str) -> str | None:
    found = _RPC.search(text)
    return None if found is None else f"{found[1]}: {found[2]}"


def _root_message(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return _message(str(cause.getMessage() or "").splitlines()) or str(cause)


def _message(lines: Iterable[str]) -> str:
    """Return the first lines of a text, up to a blank line or a frame."""
    return "\n".join(_until_the_end(lines))


def _until_the_end(lines: Iterable[str]) -> Iterator[str]:
    has_begun = False
    for line in lines:
        if line.strip() and not _AFTER.fullmatch(line):
            yield line.rstrip() if has_begun else line.strip()
            has_begun = True
        elif has_begun:
            return
