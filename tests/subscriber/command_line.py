"""Runs the command line in this process, with its own streams."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest import mock

from pullstream.cli.program import run


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a run."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.decode().splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


class Stream(io.TextIOWrapper):
    """A text stream over bytes that can pretend to be a terminal."""

    def __init__(self, raw: Any, *, terminal: bool = False) -> None:
        super().__init__(raw, encoding="utf-8", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def pullstream(*args: str, stdin: Any = b"", terminal: bool = False) -> Result:
    """Run `pullstream ARGS` with `stdin` (bytes or a binary stream), in a pipe or on a terminal."""
    source = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
    out, err = io.BytesIO(), io.BytesIO()
    stdin_text, stdout, stderr = Stream(source), Stream(out, terminal=terminal), Stream(err)
    with (
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        mock.patch("sys.stdin", stdin_text),
        mock.patch.dict("os.environ", {"COLUMNS": "100", "TERM": "dumb"}),
    ):
        code = run(args)
    # The caller closes it.
    stdin_text.detach()
    return Result(code, out.getvalue(), err.getvalue().decode())


def failure(*args: str, stdin: Any = b"") -> str:
    """Run a command that fails, and return what it writes to stderr."""
    result = pullstream(*args, stdin=stdin)
    assert result.code == 1
    return result.stderr


def usage_error(*args: str, stdin: Any = b"") -> str:
    """Run a command with wrong arguments, and return what it writes to stderr."""
    result = pullstream(*args, stdin=stdin)
    assert result.code == 2
    return result.stderr
