"""The event loop's side of a worker process."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

from .child import LENGTH

# Without `-m`, the child finds modules in this process's path and not in its working directory.
_START = (
    "import sys; sys.path[:] = {path!r}; from pullstream_emulator.offload.child import main; main()"
)

_STDIN, _STDOUT = 0, 1

# A process that has closed its output is killed if it has not ended after this many seconds.
_END_WITHIN = 5.0


class ChildProcess(asyncio.SubprocessProtocol):
    """Answers one job at a time, until it ends.

    Attributes:
        ended: Set when the process has ended, or could not be started.
    """

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes | None] | None = None
        self._received = bytearray()
        self._is_lost = False
        self._is_ending = False
        self._transport: asyncio.SubprocessTransport | None = None
        self.ended = asyncio.Event()

    async def start(self) -> None:
        """Start the process; raise OSError if this is impossible."""
        loop = asyncio.get_running_loop()
        command = (sys.executable, "-c", _START.format(path=sys.path))
        try:
            await loop.subprocess_exec(lambda: self, *command, stderr=None)
        except BaseException:
            self.connection_lost(None)
            raise
        if self._is_lost:
            self.kill()

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return None if self._transport is None else self._transport.get_pid()

    @property
    def code(self) -> int | None:
        """The exit code; None while the process runs."""
        return None if self._transport is None else self._transport.get_returncode()

    @property
    def is_free(self) -> bool:
        """Whether the process can take a job."""
        return self._answer is None and not self._is_lost

    async def answer(self, job: bytes) -> bytes | None:
        """Return the pickled answer to a pickled job; None if the process ends before.

        A caller that stops waiting for the answer must end the process.
        """
        if self._is_lost or self._transport is None:
            return None
        self._answer = asyncio.get_running_loop().create_future()
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(_STDIN))
        stdin.write(LENGTH.pack(len(job)))
        stdin.write(job)
        answer = await self._answer
        self._answer = None
        return answer

    def kill(self) -> None:
        """End the process; `ended` is set afterwards."""
        self._is_lost = True
        if self._transport is None:
            return
        if self._is_ending:
            # Killing the process now may lose its exit code: subprocess first checks whether it
            # has ended and reaps it, and asyncio then finds no such process.
            asyncio.get_running_loop().call_later(_END_WITHIN, self._transport.close)
        else:
            # Kills the process and closes the pipes.
            self._transport.close()

    # ---- asyncio's protocol --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, which writes jobs and ends the process."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Collect output until it is a whole answer, and return that to `answer`."""
        received = self._received
        received += data
        if len(received) < LENGTH.size:
            return
        (length,) = LENGTH.unpack_from(received)
        if len(received) == LENGTH.size + length:
            self._received = bytearray()
            self._settle(bytes(memoryview(received)[LENGTH.size :]))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Give up the current job, because the process is about to end."""
        self._is_ending = True
        self._lose()

    def process_exited(self) -> None:
        """Give up the current job, and close the pipes."""
        self._lose()
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up the current job, and set `ended`."""
        self._lose()
        self.ended.set()

    def _lose(self) -> None:
        self._is_lost = True
        self._settle(None)

    def _settle(self, answer: bytes | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
