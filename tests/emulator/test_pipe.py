"""A pipe passes on what comes in at either end, from the first byte on."""

from __future__ import annotations

import asyncio
import socket
from asyncio.selector_events import _SelectorSocketTransport  # type: ignore[attr-defined]

import pytest

from emulator.rest.pipe import Pipes
from tests.emulator.wire import PATIENCE


async def exchange() -> bytes:
    """What arrives at the far end of a pipe whose near end had something at once."""
    pipes = Pipes()
    here, near = socket.socketpair()
    far, there = socket.socketpair()
    for one in (here, near, far, there):
        one.setblocking(False)
    loop = asyncio.get_running_loop()
    with here, there:
        await loop.sock_sendall(here, b"early")
        pipes.add(near, far)
        got = await asyncio.wait_for(loop.sock_recv(there, 100), PATIENCE)
        await loop.sock_sendall(there, b"answer")
        assert await asyncio.wait_for(loop.sock_recv(here, 100), PATIENCE) == b"answer"
    await pipes.stop()
    return got


@pytest.mark.parametrize("python", ["this", "3.10"])
def test_what_comes_before_the_other_end_is_there_is_passed_on(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.10 reads a connection that was paused when it was made."""
    if python == "3.10":
        monkeypatch.setattr(_SelectorSocketTransport, "pause_reading", lambda transport: None)
    assert asyncio.run(exchange()) == b"early"
