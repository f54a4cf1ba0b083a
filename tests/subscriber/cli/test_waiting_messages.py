"""The number of unacknowledged messages that `pullstream ingest` shows."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pullstream.cli.context import CliContext
from pullstream.cli.waiting_messages import WaitingMessages, unacknowledged
from pullstream_emulator import Emulator
from tests.subscriber.cli.billing import SUBSCRIPTION, publish
from tests.subscriber.command_line import pullstream


def test_the_broker_tells_the_number_of_unacknowledged_messages(emulator: Emulator) -> None:
    """Only the subscription's own messages count."""
    for words in (
        "topics create projects/test-project/topics/orders",
        f"subscriptions create {SUBSCRIPTION} --topic projects/test-project/topics/orders",
    ):
        assert pullstream(*words.split()).code == 0
    publish(b"one", b"two")
    assert unacknowledged(CliContext(endpoint=emulator.endpoint), SUBSCRIPTION) == 2
    # The fixture has set the endpoint in the environment, too.
    assert unacknowledged(CliContext(), SUBSCRIPTION) == 2
    assert unacknowledged(CliContext(), "projects/test-project/subscriptions/other") is None


@pytest.mark.parametrize("endpoint", [None, "pubsub.googleapis.com:443", "127.0.0.1:1"])
def test_a_server_that_is_not_a_broker_has_no_number_of_unacknowledged_messages(
    endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google's servers are not asked, because they would get the broker's token."""
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    assert unacknowledged(CliContext(endpoint=endpoint), SUBSCRIPTION) is None


def test_the_number_of_unacknowledged_messages_is_asked_on_a_thread_of_its_own() -> None:
    """A slow answer does not stop the display."""
    answers: Iterator[int] = iter([7])
    may_answer, asked = threading.Event(), threading.Event()

    def ask() -> int | None:
        may_answer.wait()
        asked.set()
        return next(answers, None)

    waiting = WaitingMessages(ask)
    with waiting.asking():
        assert waiting.count is None
        may_answer.set()
        assert asked.wait(30)
