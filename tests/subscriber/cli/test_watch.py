"""`pullstream watch`: prints records appended to feeds, until it is stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from pullstream import SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.subscriber.cli.billing import Process, command, next_line
from tests.subscriber.command_line import failure, pullstream

NEWS = names.topic_path("test-project", "news")
OLDS = names.topic_path("test-project", "olds")

# The seconds in which all available records come, even on a busy machine.
IDLE = "1.0"


@pytest.fixture(autouse=True)
def topics(broker: Emulator) -> None:
    with SubscriberClient() as client:
        client.feeds.put(NEWS, {"cap_records": 2})
        client.feeds.put(OLDS)


def append(topic: str, records: list[Any], **fields: Any) -> None:
    with SubscriberClient() as client:
        client.feeds.append(topic, records, **fields)


def test_the_watch_command_prints_records_of_feeds_and_stops_at_the_requested_number() -> None:
    """A pipe gets the data alone."""
    append(OLDS, ["one", "two", "three"])
    result = pullstream("watch", "olds", "--after", "0", "--max-messages", "2")
    assert (result.code, result.stdout, result.stderr) == (0, b"one\ntwo\n", "")


def test_the_watch_command_prints_gaps_and_ends_after_the_idle_time_without_records() -> None:
    """Notes report both. The command stops after the idle time with exit code 0."""
    append(NEWS, ["1", "2", "3"])
    result = pullstream("watch", "news", "--after", "0", "--idle-exit", IDLE)
    assert (result.code, result.stdout) == (0, b"2\n3\n")
    assert result.stderr.splitlines() == [
        f"{NEWS}: begins at 2; earlier records are no longer kept",
        f"{NEWS}: caught up at 3",
    ]


def test_the_watch_command_with_json_prints_an_object_for_each_record_and_event() -> None:
    """Each object has its topic."""
    append(OLDS, [{"data": b"one", "attributes": {"tag": "t", "x": "y"}}])
    result = pullstream(
        *("watch", "news", "olds", "--after", "0", "--no-data", "--json", "--idle-exit", IDLE),
    )
    (record,) = [one for one in result.objects if one["event"] == "record"]
    others = [one for one in result.objects if one["event"] != "record"]
    assert record.pop("publishTime").endswith("Z")
    assert record == {
        "event": "record",
        "topic": OLDS,
        "messageId": "1",
        "orderingKey": "",
        "attributes": {"tag": "t"},
        "data": "",
    }
    assert sorted(one["topic"] for one in others) == [NEWS, OLDS]
    assert {one["event"] for one in others} == {"caught-up"}


def test_the_watch_command_prints_the_topic_above_each_message_on_a_terminal() -> None:
    """The topic is above the data."""
    append(OLDS, ["one"])
    result = pullstream("watch", "olds", "--after", "0", "--max-messages", "1", terminal=True)
    head, body = result.lines
    assert head.startswith("olds  1  2")
    assert body == "one"


def test_the_watch_command_applies_its_filter_and_exclude_node_options_to_records() -> None:
    """Records of the user's own node are left out."""
    for data, tag, node in (("1", "a", "x"), ("2", "b", "x"), ("3", "a", "y"), ("4", "a", "x")):
        append(OLDS, [{"data": data.encode(), "attributes": {"tag": tag, "node": node}}])
    result = pullstream(
        *("watch", "olds", "--after", "0", "--message-filter", 'attributes.tag = "a"'),
        *("--exclude-node", "y", "--max-messages", "2"),
    )
    assert result.lines == ["1", "4"]


def test_the_watch_command_fails_for_a_missing_topic() -> None:
    """The error is one line."""
    error = failure("watch", "nothing")
    assert error.startswith("Error: NOT_FOUND: ")
    assert error.count("\n") == 1


# ---- signals -------------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[Process]:
    with command("watch", "olds", "--after", "0") as running:
        yield running


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_watch_command_without_a_traceback_or_an_incomplete_output_line(
    number: int, code: int, process: Process
) -> None:
    """There is no traceback and no incomplete line."""
    append(OLDS, ["one"])
    assert next_line(process) == b"one\n"
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out) == (code, b"")
    assert err.decode().splitlines() in ([], [f"{OLDS}: caught up at 1"])


def test_the_watch_command_ends_when_the_reader_closes_its_output_pipe(process: Process) -> None:
    """The reader closes in `pullstream watch | head -1`."""
    append(OLDS, ["one"])
    assert next_line(process) == b"one\n"
    assert process.stdout is not None
    process.stdout.close()
    append(OLDS, ["two"])
    assert process.wait() == 1
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
