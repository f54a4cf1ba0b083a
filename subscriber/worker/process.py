"""One child as its parent sees it: a process, the line to it, and the threads that listen."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

from .job import Job
from .line import Line, News

# Seconds in which the last words of a process that is gone must have been read.
_LAST_WORDS = 2.0
_STDERR = 2


class ChildProcess:
    """A running child.

    Args:
        heard, ended: called on threads of this object's, with what the child tells, and, last of
            all, with its exit code; a negative one is the signal that killed it.
        printed: called on a thread with each line that the child prints. None: what it prints
            goes to this process's stderr.
        reloading: whether its modules may change within the second, which cached bytecode misses.

    Raises:
        OSError: the system has no process to give.
    """

    def __init__(
        self,
        job: Job,
        *,
        heard: Callable[[News], None],
        ended: Callable[[int], None],
        printed: Callable[[str], None] | None = None,
        reloading: bool = False,
    ) -> None:
        self._line, theirs = Line.pair()
        descriptor = theirs.fileno()
        self._process = subprocess.Popen(
            [
                *(sys.executable, *(["-B"] if reloading else [])),
                *("-m", "subscriber.worker", str(descriptor), job.to_json()),
            ],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if printed else _STDERR,
            stderr=subprocess.STDOUT if printed else None,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C is for the parent, which tells the children.
            start_new_session=True,
        )
        theirs.close()
        self.pid = self._process.pid
        listener = self._thread(self._listen, heard)
        relay = [self._thread(self._relay, printed)] if printed else []
        self._thread(self._wait, ended, [listener, *relay])

    def drain(self) -> None:
        """Let it finish what it has begun, and end."""
        self._line.end_writing()

    def kill(self) -> None:
        """End it at once. What it held is delivered again."""
        self._process.kill()

    def _thread(self, target: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(
            target=target, args=args, name=f"pullstream-child-{self.pid}", daemon=True
        )
        thread.start()
        return thread

    def _listen(self, heard: Callable[[News], None]) -> None:
        for news in self._line.news():
            heard(news)

    def _relay(self, printed: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for text in lines:
                printed(text.rstrip("\n"))

    def _wait(self, ended: Callable[[int], None], others: list[threading.Thread]) -> None:
        code = self._process.wait()
        for thread in others:
            # Bounded: a process that the callback has forked may hold the other ends open.
            thread.join(_LAST_WORDS)
        self._line.close()
        ended(code)
