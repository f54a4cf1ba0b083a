"""Output of one of several processes that write to the same place."""

from __future__ import annotations

import io
import sys
import threading
from typing import BinaryIO, TextIO


class LabelledOutput(io.TextIOBase):
    """Begins each line with the label of the process, and writes whole lines only.

    Any thread may call any method. Each thread has its own unfinished line, so lines of two
    threads do not mix, and lines that a thread writes at once stay together.

    Args:
        stream: Where the lines go.
        label: The beginning of each line.
    """

    def __init__(self, stream: TextIO, label: str) -> None:
        self._stream = stream
        self._label = label
        self._lock = threading.Lock()
        self._unfinished = threading.local()

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
        *lines, rest = (getattr(self._unfinished, "text", "") + text).split("\n")
        self._unfinished.text = rest
        if lines:
            with self._lock:
                self._stream.write("".join(f"{self._label}{line}\n" for line in lines))
                self._stream.flush()
        return len(text)


def label_output(label: str) -> None:
    """Label the lines that this process prints from now on, on stdout and stderr."""
    sys.stdout = LabelledOutput(sys.stdout, label)
    sys.stderr = LabelledOutput(sys.stderr, label)
