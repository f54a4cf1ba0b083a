"""`pullstream pull`: shows or takes the waiting messages."""

from __future__ import annotations

import pytest

from pullstream_emulator import Emulator
from tests.subscriber.cli.billing import SUBSCRIPTION, publish
from tests.subscriber.command_line import failure, pullstream

pytestmark = pytest.mark.usefixtures("billing")


def test_the_pull_command_prints_message_data_unchanged_to_a_pipe(broker: Emulator) -> None:
    """Each message is one line, and without --ack nothing is acknowledged."""
    publish(b"one", b"\xff\xfe")
    result = pullstream("pull", "billing")
    assert (result.code, result.stdout) == (0, b"one\n\xff\xfe\n")
    assert broker.backlog(SUBSCRIPTION) == 2


def test_the_pull_command_with_ack_acknowledges_the_printed_messages(broker: Emulator) -> None:
    """The messages are not redelivered."""
    publish(b"one", b"two")
    assert pullstream("pull", "billing", "--ack").stdout == b"one\ntwo\n"
    assert broker.backlog(SUBSCRIPTION) == 0


def test_the_pull_command_prints_at_most_the_requested_number_of_messages(broker: Emulator) -> None:
    """The rest stays."""
    publish(b"one", b"two", b"three")
    assert pullstream("pull", "billing", "--ack", "--max-messages", "2").stdout == b"one\ntwo\n"
    assert broker.backlog(SUBSCRIPTION) == 1


def test_the_pull_command_with_json_prints_all_fields_of_a_message() -> None:
    """Text is unchanged, other data is base64 with a flag, and the ack id is there while valid."""
    ids = publish("Grüße".encode(), b"\xff", attributes={"a": "1"}, ordering_key="k")
    first, second = pullstream("pull", "billing", "--json").objects
    assert first.pop("publishTime").endswith("Z")
    assert first.pop("ackId")
    assert first == {
        "messageId": ids[0],
        "orderingKey": "k",
        "attributes": {"a": "1"},
        "data": "Grüße",
    }
    assert (second["data"], second["base64"]) == ("/w==", True)
    publish(b"three")
    (third,) = pullstream("pull", "billing", "--json", "--ack").objects
    assert "ackId" not in third


def test_the_pull_command_prints_a_header_and_escaped_message_data_to_a_terminal() -> None:
    """No part of a message can control the terminal."""
    (message_id,) = publish(b"[bold]\x1b[2Jdata", attributes={"a": "\x07"}, ordering_key="k")
    pulled = pullstream("pull", "billing", terminal=True)
    head, body = pulled.lines
    assert "not acknowledged: delivered again" in pulled.stderr
    assert head.split()[0] == message_id
    assert head.split()[2:] == ["key=k", "a=\\x07"]
    assert body == "[bold]\\x1b[2Jdata"
    publish(b"\xff\xff")
    assert pullstream("pull", "billing", terminal=True).lines[1] == "(2 bytes, not text)"


@pytest.mark.parametrize("wait", ["0", "0.05"])
def test_the_pull_command_succeeds_if_no_message_arrives_before_its_timeout(wait: str) -> None:
    """A note says so, and stdout stays empty."""
    result = pullstream("pull", "billing", "--wait", wait)
    assert (result.code, result.stdout, result.stderr) == (0, b"", "no messages\n")


def test_the_pull_command_fails_for_a_missing_subscription() -> None:
    """The error is one line."""
    error = failure("pull", "nothing")
    assert error.startswith("Error: NOT_FOUND: ")
