"""When the interpreter exits, and no thread can be started any more."""

from __future__ import annotations

import threading

import pytest

from subscriber import Message, interpreter_exit
from tests.subscriber.streaming.fakes import PATIENCE
from tests.subscriber.world import SUBSCRIPTION, world


def test_what_was_decided_is_still_told_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a call that gRPC would need a thread for."""
    with world() as here:
        here.publish(b"a")
        handled = threading.Event()

        def handle(message: Message) -> None:
            monkeypatch.setattr(interpreter_exit, "threads_are_refused", lambda: True)
            message.ack()
            handled.set()

        future = here.client.subscribe(SUBSCRIPTION, handle)
        assert handled.wait(PATIENCE)
        future.cancel()
        future.result(PATIENCE)
        assert here.backlog == 0
        monkeypatch.undo()
