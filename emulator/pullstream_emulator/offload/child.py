"""The program of a worker process: answers one job after the other until its input ends."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

# Precedes each message between the processes: its length in bytes.
LENGTH = struct.Struct("!Q")

# Lowers the process's priority, so that the broker's event loop runs first.
_NICENESS = 5

# A function, pickled by its name, and its arguments.
Job = tuple[Callable[..., Any], tuple[Any, ...]]


def dumps(value: Any) -> bytes:
    """Pickle a job or an answer for the other process, which runs the same Python."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def main() -> None:
    """Serve the parent over standard input and output."""
    # Ctrl-C in a terminal reaches every process. Only the parent reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    # Output that a library prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with answers, os.fdopen(0, "rb", closefd=False) as jobs:
        while (job := _read(jobs)) is not None:
            try:
                answer = _answer(job)
                answers.write(LENGTH.pack(len(answer)))
                answers.write(answer)
                answers.flush()
            except BrokenPipeError:
                return


def _read(jobs: BinaryIO) -> bytes | None:
    head = jobs.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    content = jobs.read(length)
    return content if len(content) == length else None


def _answer(content: bytes) -> bytes:
    """Return a pickled pair: whether the function returned, and its result or exception."""
    try:
        job: Job = pickle.loads(content)
        function, arguments = job
        return dumps((True, function(*arguments)))
    except Exception as error:
        try:
            answer = dumps((False, error))
            pickle.loads(answer)
        except Exception:
            answer = dumps((False, RuntimeError("".join(traceback.format_exception(error)))))
        return answer
