"""`pullstream fetch` and `pullstream subscriptions state`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pullstream import SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol import names
from pullstream_protocol.errors import Unavailable
from tests.subscriber.cli.billing import SUBSCRIPTION, TOPIC, publish
from tests.subscriber.command_line import pullstream, usage_error

pytestmark = pytest.mark.usefixtures("billing")
ROOT = Path(__file__).parents[3]


def test_the_fetch_command_prints_messages_to_stdout_and_the_reason_of_its_end_to_stderr(
    broker: Emulator,
) -> None:
    """Each message is one line, and the note is on stderr. Without --ack none is acknowledged."""
    publish(b"one", b"\xff\xfe")
    result = pullstream("fetch", "billing")
    assert (result.code, result.stdout) == (0, b"one\n\xff\xfe\n")
    assert result.stderr == "2 messages (drained)\n"
    assert broker.backlog(SUBSCRIPTION) == 2


def test_the_fetch_command_with_ack_acknowledges_the_printed_messages(broker: Emulator) -> None:
    """The command stops at the requested number, and the rest stays."""
    publish(b"one", b"two", b"three")
    result = pullstream("fetch", "billing", "--ack", "--max-messages", "2")
    assert (result.stdout, result.stderr) == (b"one\ntwo\n", "2 messages (filled)\n")
    assert broker.backlog(SUBSCRIPTION) == 1


def test_the_fetch_command_prints_the_messages_received_before_its_timeout() -> None:
    """The note gives the reason."""
    publish(b"one")
    result = pullstream("fetch", "billing", "--min-messages", "2", "--timeout", "1")
    assert (result.stdout, result.stderr) == (b"one\n", "1 message (timed out)\n")


def test_the_fetch_command_with_json_prints_all_fields_of_a_message() -> None:
    """An ack id is left out, because the delivery is over."""
    (message_id,) = publish(b"one")
    for options in ((), ("--ack",)):
        (record,) = pullstream("fetch", "billing", "--json", *options).objects
        assert (record["messageId"], record["data"]) == (message_id, "one")
        assert "ackId" not in record


def test_the_fetch_command_without_ack_adds_no_delivery_attempt_to_returned_messages(
    broker: Emulator,
) -> None:
    """The next command gets them. Nothing has moved the clock."""
    policy = {"dead_letter_topic": TOPIC, "max_delivery_attempts": 5}
    dead = names.subscription_path("test-project", "dead-letters")
    with SubscriberClient() as client:
        client.create_subscription(name=dead, topic=TOPIC, dead_letter_policy=policy)
    publish(b"one")
    for _ in range(7):
        result = pullstream("fetch", "dead-letters", "--no-wait")
        assert result.stdout == b"one\n"
    (record,) = pullstream("fetch", "dead-letters", "--json").objects
    assert record["deliveryAttempt"] == 1
    dry = pullstream("redrive", "dead-letters", "--dry-run", "--to", "orders", "--timeout", "1")
    assert dry.stderr == "would move 1\n"
    for _ in range(2):
        assert pullstream("fetch", "dead-letters", "--no-wait").stdout == b"one\n"
    assert broker.backlog(dead) == 1


def test_the_fetch_command_without_ack_prints_that_messages_go_back_to_the_server() -> None:
    """The note also says how to acknowledge messages."""
    publish(b"one")
    assert (
        "returned to the subscription (--ack"
        in pullstream("fetch", "billing", terminal=True).stderr
    )


@pytest.mark.parametrize("options", [["--no-wait"], ["--timeout", "1"]])
def test_the_fetch_command_succeeds_if_no_message_arrives_before_its_timeout(
    options: list[str],
) -> None:
    """A note says so, and stdout stays empty."""
    result = pullstream("fetch", "billing", *options)
    assert (result.code, result.stdout, result.stderr) == (0, b"", "no messages\n")


def test_the_fetch_command_fails_if_the_server_does_not_answer(broker: Emulator) -> None:
    """A server that refuses is a failure too."""
    with broker.faults.drop("Pull"):
        silent = pullstream("fetch", "billing", "--timeout", "0.1")
    assert silent.code == 1
    assert silent.stderr.startswith("Error: the server did not answer ")
    with broker.faults.error("Pull", Unavailable("away")):
        away = pullstream("fetch", "billing")
    assert (away.code, away.stderr) == (1, "Error: UNAVAILABLE: away\n")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--min-messages", "11"], "--min-messages must be no more than --max-messages"),
        (["--repeat", "--no-wait"], "--repeat waits for messages"),
        (["--repeat"], "--repeat needs --ack"),
        (["--timeout", "0"], "0.0 is not in the range x>0"),
    ],
)
def test_the_fetch_command_refuses_contradictory_options(options: list[str], text: str) -> None:
    """The exit code is 2, and no request is sent."""
    assert text in usage_error("fetch", "billing", *options)


def test_the_fetch_command_with_the_repeat_option_fetches_messages_until_ctrl_c(
    broker: Emulator,
) -> None:
    """With --repeat, each message is printed as soon as it comes."""
    command = ["-m", "pullstream", "fetch", SUBSCRIPTION, "--repeat", "--ack"]
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        for text in ("one", "two"):
            publish(text.encode())
            assert program.stdout.readline() == f"{text}\n"
            broker.wait_until_acked(SUBSCRIPTION)
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 130


def test_the_subscriptions_state_command_prints_message_counts_and_sets_max_waiting() -> None:
    """The same command can set the limit of the subscription."""
    publish(b"one", b"two")
    pullstream("pull", "billing", "--max-messages", "1")
    lines = pullstream("subscriptions", "state", "billing").lines
    assert {"maxWaiting: 512", "numPending: 1", "numAckPending: 1", "ackWait: 10s"} <= set(lines)
    assert "delivered.streamSeq: 1" in lines
    set_to = pullstream("subscriptions", "state", "billing", "--max-waiting", "7", "--json")
    assert json.loads(set_to.stdout)["maxWaiting"] == 7
