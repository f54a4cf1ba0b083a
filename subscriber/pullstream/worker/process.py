"""The parent's side of one child: the process, its control pipe, and the threads that read it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

from .control_pipe import ControlPipe, Report
from .job import Job

# Seconds to read the remaining output of a process that has ended.
_LAST_WORDS = 2.0
_STDERR = 2


class ChildProcess:
    """A running child.

    Args:
        job: The child's work.
        reported: Called on a thread of this object with the child's reports.
        ended: Called on a thread of this object, last of all, with the child's exit code. A
            negative code is the signal that killed the child.
        printed: Called on a thread of this object with each line that the child prints. None: the
            child's output goes to the stderr of this process.
        reloading: Disables cached bytecode, which misses a second change of a module within one
            second.

    Raises:
        OSError: The system cannot start a process.
    """

    def __init__(
        self,
        job: Job,
        *,
        reported: Callable[[Report], None],
        ended: Callable[[int], None],
        printed: Callable[[str], None] | None = None,
        reloading: bool = False,
    ) -> None:
        self._control_pipe, child_end = ControlPipe.pair()
        descriptor = child_end.fileno()
        self._process = subprocess.Popen(
            [
                *(sys.executable, *(["-B"] if reloading else [])),
                *("-m", "pullstream.worker", str(descriptor)),
            ],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if printed else _STDERR,
            stderr=subprocess.STDOUT if printed else None,
            encoding="utf-8",
            errors="replace",
            # Ctrl-C goes only to the parent, which stops the children.
            start_new_session=True,
        )
        child_end.close()
        self._control_pipe.send_job(job.to_json())
        self.pid = self._process.pid
        listener = self._thread(self._listen, reported)
        relay = [self._thread(self._relay, printed)] if printed else []
        self._thread(self._wait, ended, [listener, *relay])

    def drain(self) -> None:
        """Let the process finish its running callbacks and end."""
        self._control_pipe.end_writing()

    def kill(self) -> None:
        """End the process immediately. Its messages are redelivered."""
        self._process.kill()

    def _thread(self, target: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(
            target=target, args=args, name=f"pullstream-child-{self.pid}", daemon=True
        )
        thread.start()
        return thread

    def _listen(self, reported: Callable[[Report], None]) -> None:
        for report in self._control_pipe.reports():
            reported(report)

    def _relay(self, printed: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for text in lines:
                printed(text.rstrip("\n"))

    def _wait(self, ended: Callable[[int], None], others: list[threading.Thread]) -> None:
        code = self._process.wait()
        for thread in others:
            # Limited: a process that the callback has forked may keep the other ends open.
            thread.join(_LAST_WORDS)
        self._control_pipe.close()
        ended(code)
