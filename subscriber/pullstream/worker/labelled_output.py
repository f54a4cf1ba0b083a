"""Output of one of several processes that write to the same place."""

from __future__ import annotations

import atexit
import io
import sys
import threading
from typing import Any, BinaryIO, TextIO


class LabelledOutput(io.TextIOBase):
    """Begins each line with the label of the process, and writes whole lines only.

    Any thread may call any method. Each thread has its own unfinished line, so lines of two
    threads do not mix, and lines that a thread writes at once stay together. `finish` writes the
    unfinished lines at the end of the program. Further attributes are those of the stream.

    Args:
        stream: Where the lines go.
        label: The beginning of each line.
    """

    def __init__(self, stream: TextIO, label: str) -> None:
        self._stream = stream
        self._label = label
        self._lock = threading.Lock()
        # By the identifier of the thread.
        self._unfinished: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        """The bytes of the stream. What is written there has no label."""
        return self._stream.buffer

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether the lines go to a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write the lines that the text completes, and keep the rest."""
        here = threading.get_ident()
        *lines, rest = (self._unfinished.pop(here, "") + text).split("\n")
        if rest:
            self._unfinished[here] = rest
        if lines:
            with self._lock:
                self._stream.write("".join(f"{self._label}{line}\n" for line in lines))
                self._stream.flush()
        return len(text)

    def finish(self) -> None:
        """Write the lines whose ends are missing."""
        for thread in list(self._unfinished):
            rest = self._unfinished.pop(thread, "")
            with self._lock:
                self._stream.write(f"{self._label}{rest}\n")
        self._stream.flush()


def label_output(label: str) -> None:
    """Label the lines that this process prints from now on, on stdout and stderr."""
    for name in ("stdout", "stderr"):
        output = LabelledOutput(getattr(sys, name), label)
        setattr(sys, name, output)
        atexit.register(output.finish)
