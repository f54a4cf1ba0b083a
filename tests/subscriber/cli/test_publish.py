"""`pullstream publish`: from arguments, files and pipes into a topic."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pullstream.client import SubscriberClient
from pullstream.topics import TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.cli.billing import SUBSCRIPTION, TOPIC
from tests.subscriber.command_line import failure, pullstream, usage_error

pytestmark = pytest.mark.usefixtures("billing")


def arrived(count: int) -> list[pubsub.PubsubMessage]:
    """Return the next messages of the subscription, as many as given."""
    found: list[pubsub.PubsubMessage] = []
    with SubscriberClient() as client:
        while len(found) < count:
            response = client.pull(subscription=SUBSCRIPTION, max_messages=count - len(found))
            found.extend(received.message for received in response.received_messages)
    return found


def test_the_publish_command_publishes_each_of_its_arguments_as_a_message() -> None:
    """The command prints their ids, one per line."""
    result = pullstream(
        "publish", "orders", "one", "zwölf", "--attribute", "a=1", "--attribute", "b="
    )
    assert result.code == 0
    messages = arrived(2)
    assert [message.message_id for message in messages] == result.lines
    assert [message.data.decode() for message in messages] == ["one", "zwölf"]
    assert dict(messages[0].attributes) == {"a": "1", "b": ""}


def test_the_publish_command_with_json_prints_an_object_for_each_message_id() -> None:
    """The field has the name of the REST interface."""
    (published,) = pullstream("publish", "orders", "one", "--json").objects
    assert published == {"messageId": arrived(1)[0].message_id}


def test_the_publish_command_publishes_each_line_of_a_file_as_a_message(tmp_path: Path) -> None:
    """The data is unchanged without the end of the line. Empty lines are left out and counted."""
    file = tmp_path / "orders.txt"
    file.write_bytes(b"one\n\n\xff\x00\r\nthree")
    result = pullstream("publish", "orders", "--file", str(file))
    assert [message.data for message in arrived(3)] == [b"one", b"\xff\x00", b"three"]
    assert result.stderr == "Empty lines skipped: 1\n"


def test_the_publish_command_publishes_each_line_of_stdin_as_a_message() -> None:
    """With an attribute an empty line is a message, too."""
    pullstream("publish", "orders", "--attribute", "a=1", stdin=b"one\n\n")
    assert [message.data for message in arrived(2)] == [b"one", b""]


def test_the_publish_command_publishes_a_line_of_stdin_before_the_next_line_arrives() -> None:
    """The end of stdin may come much later."""
    reader, writer = os.pipe()
    with (
        ThreadPoolExecutor() as pool,
        open(reader, "rb") as stdin,
        open(writer, "wb", buffering=0) as pipe,
    ):
        running = pool.submit(pullstream, "publish", "orders", stdin=stdin)
        for line in (b"one", b"two"):
            pipe.write(line + b"\n")
            assert arrived(1)[0].data == line
        pipe.close()
        assert running.result().code == 0


def test_the_publish_command_publishes_a_large_file_in_batches(
    tmp_path: Path, broker: Emulator
) -> None:
    """One run publishes more messages than one request can hold."""
    file = tmp_path / "orders.txt"
    file.write_text("".join(f"{number}\n" for number in range(2500)))
    result = pullstream("publish", "orders", "--file", str(file))
    assert len(set(result.lines)) == 2500
    assert broker.backlog(SUBSCRIPTION) == 2500


def test_the_ordering_key_option_of_the_publish_command_applies_to_all_messages() -> None:
    pullstream("publish", "orders", "one", "two", "--ordering-key", "k")
    assert [message.ordering_key for message in arrived(2)] == ["k", "k"]


def test_the_publish_command_can_take_the_ordering_key_from_a_field_of_each_line() -> None:
    """The key is a field of the line, which stays in the data."""
    stdin = b"eu;1\nus;2\n"
    pullstream("publish", "orders", "--key-field", "1", "--delimiter", ";", stdin=stdin)
    # Messages of different keys have no order.
    found = {(message.ordering_key, message.data) for message in arrived(2)}
    assert found == {("eu", b"eu;1"), ("us", b"us;2")}


def test_the_publish_command_fails_for_a_line_without_the_field_of_its_ordering_key() -> None:
    """Earlier lines of the same batch are not published either."""
    error = failure("publish", "orders", "--key-field", "2", stdin=b"a,b\nc\n")
    assert error == "Error: line 2: no field 2 for the ordering key (fields: 1)\n"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("one", "--file", "-"), "one of MESSAGES, --file and --from"),
        (
            ("one", "--ordering-key", "k", "--key-field", "1"),
            "either --ordering-key or --key-field",
        ),
        (("one", "--from", "-"), "one of MESSAGES, --file and --from"),
        (("--from", "-", "--key-field", "1"), "The messages of --from have their ordering keys"),
        (("--from", "-", "--ordering-key", "k"), "remove --ordering-key or --key-field"),
        (("one", "--attribute", "a"), "'a' does not have the form KEY=VALUE"),
    ],
)
def test_arguments_of_the_publish_command_that_exclude_each_other_are_a_usage_error(
    args: tuple[str, ...], text: str
) -> None:
    """The error names them."""
    assert text in usage_error("publish", "orders", *args)


def test_a_failed_publish_command_prints_the_ids_of_the_messages_that_were_published() -> None:
    """The ids of those messages have been printed."""
    stdin = io.BufferedReader(io.BytesIO(b"x" * 100 + b"\n" + b"y" * 11_000_000))
    result = pullstream("publish", "orders", stdin=stdin)
    assert result.code == 1
    assert len(result.lines) == 1
    first, second = result.stderr.splitlines()
    assert first == "Messages published before the error: 1"
    assert second.startswith("Error: a request with this message alone has 11,000,0")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--attribute", "goog_x=1"), "--attribute: attribute name 'goog_x' begins with 'goog'"),
        (("--attribute", f"a={'v' * 1025}"), "--attribute: attribute 'a' has 1025 bytes"),
        (("--ordering-key", "k" * 1025), "--ordering-key: ordering_key has 1025 bytes"),
    ],
)
def test_the_publish_command_names_the_option_whose_value_pubsub_would_refuse(
    options: tuple[str, str], text: str
) -> None:
    """Nothing is published."""
    assert text in usage_error("publish", "orders", "one", *options)


def test_the_error_of_the_publish_command_names_a_line_with_a_refused_ordering_key() -> None:
    """Earlier lines of the same batch are not published either."""
    stdin = b"a,1\n" + b"k" * 1025 + b",2\n"
    error = failure("publish", "orders", "--key-field", "1", stdin=stdin)
    assert error == "Error: line 2: ordering_key has 1025 bytes; it may have 1024\n"


@pytest.mark.parametrize("command", ["fetch", "pull"])
def test_the_publish_command_republishes_received_messages_unchanged(command: str) -> None:
    """Text and other data, attributes and ordering keys."""
    with TopicAdminClient() as topics:
        messages: list[dict[str, Any]] = [
            {"data": "zwölf\nLinien".encode(), "attributes": {"a": "1"}, "ordering_key": "k"},
            {"data": b"\xff\x00"},
            {"attributes": {"only": "attributes"}},
        ]
        topics.publish(TOPIC, messages)
    saved = pullstream(command, "billing", "--ack", "--json").stdout
    result = pullstream("publish", "orders", "--from", "-", "--attribute", "copy=1", stdin=saved)
    assert (result.code, len(result.lines)) == (0, 3)
    copies = {
        (copy.data, copy.ordering_key, tuple(sorted(copy.attributes.items())))
        for copy in arrived(3)
    }
    assert copies == {
        ("zwölf\nLinien".encode(), "k", (("a", "1"), ("copy", "1"))),
        (b"\xff\x00", "", (("copy", "1"),)),
        (b"", "", (("copy", "1"), ("only", "attributes"))),
    }


def test_the_publish_command_removes_attributes_that_servers_have_added_to_a_message() -> None:
    """Publishing would refuse them."""
    record = b'{"data": "x", "attributes": {"googclient_schemaname": "s", "a": "1"}}\n\n'
    result = pullstream("publish", "orders", "--from", "-", stdin=record)
    assert (result.code, result.stderr) == (0, "Empty lines skipped: 1\n")
    (message,) = arrived(1)
    assert dict(message.attributes) == {"a": "1"}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"one", "it is not JSON: Expecting value"),
        (b"[1]", "it is not a message as `fetch --json` writes it"),
        (b'{"subscription": "s", "acknowledged": 3}', "it has no data"),
        (b'{"data": 1}', "data is 1; it must be text"),
        (b'{"data": "x", "orderingKey": 1}', "orderingKey is 1; it must be text"),
        (b'{"data": "x", "attributes": []}', "attributes is []; it must be an object"),
        (b'{"data": "x", "attributes": {"a": 1}}', "a"),
        (b'{"data": "%", "base64": true}', "base64"),
        (b'{"data": "\\udcff"}', "surrogates not allowed"),
        (b"\xff", "can't decode"),
    ],
)
def test_the_publish_command_prints_the_number_of_an_input_line_with_an_invalid_message(
    line: bytes, text: str
) -> None:
    """Messages of earlier lines may have been published."""
    error = failure("publish", "orders", "--from", "-", stdin=b'{"data": "x"}\n' + line)
    published, error = error.splitlines()
    assert published == "Messages published before the error: 1"
    assert error.startswith("Error: line 2: ")
    assert text in error
