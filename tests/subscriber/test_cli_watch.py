"""`pullstream watch`: prints what is appended to feeds, until it is told to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from emulator import Emulator
from protocol import names
from subscriber import FeedsClient
from tests.subscriber.command_line import pullstream

NEWS = names.topic_path("test-project", "news")
OLDS = names.topic_path("test-project", "olds")

# Seconds in which everything comes that is there, also on a busy machine.
IDLE = "1.0"


@pytest.fixture(autouse=True)
def client(pubsub_emulator: Emulator) -> Iterator[FeedsClient]:
    with FeedsClient() as client:
        client.put_feed(topic=NEWS, config={"cap_records": 2})
        client.put_feed(topic=OLDS)
        yield client


def test_it_prints_what_comes_and_stops_at_the_number_asked_for(client: FeedsClient) -> None:
    """Into a pipe goes the data alone."""
    client.append(OLDS, ["one", "two", "three"])
    result = pullstream("watch", "olds", "--after", "0", "--max-messages", "2")
    assert (result.code, result.stdout, result.stderr) == (0, b"one\ntwo\n", "")


def test_it_tells_what_was_lost_and_when_there_is_no_more(client: FeedsClient) -> None:
    """As remarks; and it stops when nothing comes for too long, which is no failure."""
    client.append(NEWS, ["1", "2", "3"])
    result = pullstream("watch", "news", "--after", "0", "--idle-exit", IDLE)
    assert (result.code, result.stdout) == (0, b"2\n3\n")
    assert result.stderr.splitlines() == [
        f"{NEWS}: lost 1 to 1 (from_seq_too_old)",
        f"{NEWS}: caught up at 3",
    ]


def test_machines_get_an_object_for_each_event(client: FeedsClient) -> None:
    """Each with its topic."""
    client.append(OLDS, [{"data": b"one", "attributes": {"tag": "t", "x": "y"}}])
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


def test_people_see_of_which_topic_a_message_is(client: FeedsClient) -> None:
    """Above its data."""
    client.append(OLDS, ["one"])
    result = pullstream("watch", "olds", "--after", "0", "--max-messages", "1", terminal=True)
    head, body = result.lines
    assert head.startswith("olds  1  2")
    assert body == "one"


def test_only_what_passes_the_filter_is_printed(client: FeedsClient) -> None:
    """And nothing of one's own node."""
    for data, tag, node in (("1", "a", "x"), ("2", "b", "x"), ("3", "a", "y"), ("4", "a", "x")):
        client.append(OLDS, [{"data": data.encode(), "attributes": {"tag": tag, "node": node}}])
    result = pullstream(
        *("watch", "olds", "--after", "0", "--message-filter", 'attributes.tag = "a"'),
        *("--exclude-node", "y", "--max-messages", "2"),
    )
    assert result.lines == ["1", "4"]


def test_a_topic_that_does_not_exist_is_a_failure() -> None:
    """One line tells."""
    result = pullstream("watch", "nothing")
    assert result.code == 1
    assert result.stderr.startswith("Error: NOT_FOUND: ")
    assert result.stderr.count("\n") == 1


# ---- being stopped -------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """The program as a process of its own."""
    command = [sys.executable, "-m", "subscriber.cli", "watch", "olds", "--after", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        yield running
        running.kill()


def next_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_good_order(
    number: int, code: int, process: subprocess.Popen[bytes], client: FeedsClient
) -> None:
    """There is no traceback, and no half line."""
    client.append(OLDS, ["one"])
    assert next_line(process) == b"one\n"
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out) == (code, b"")
    assert err.decode().splitlines() in ([], [f"{OLDS}: caught up at 1"])


def test_a_reader_that_leaves_ends_it(
    process: subprocess.Popen[bytes], client: FeedsClient
) -> None:
    """As in `pullstream watch | head -1`."""
    client.append(OLDS, ["one"])
    assert next_line(process) == b"one\n"
    assert process.stdout is not None
    process.stdout.close()
    client.append(OLDS, ["two"])
    assert process.wait() == 1
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
