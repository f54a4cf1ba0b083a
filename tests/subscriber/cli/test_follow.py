"""`pullstream follow`: prints a topic from a stored position."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pullstream import SubscriberClient
from pullstream_emulator import Emulator
from pullstream_protocol import names
from tests.contract.following import kept_in
from tests.subscriber.cli.billing import Process, command, next_line
from tests.subscriber.command_line import failure, pullstream, usage_error

TOPIC = names.topic_path("test-project", "orders")
CURSOR = "projects/test-project/cursors/billing"


@pytest.fixture(autouse=True)
def orders(broker: Emulator) -> None:
    append("one", "two")


def append(*records: str) -> None:
    with SubscriberClient() as client:
        client.feeds.append(TOPIC, records)


def until_caught_up(*options: str) -> list[str]:
    result = pullstream("follow", "orders", "--until-caught-up", *options)
    assert result.code == 0
    return result.lines


def test_the_follow_command_continues_after_the_last_record_of_the_last_run(tmp_path: Path) -> None:
    """Positions are in a file, under the topic's name or another."""
    file = str(tmp_path / "positions.db")
    assert until_caught_up("--checkpoint", file) == ["one", "two"]
    append("three")
    assert until_caught_up("--checkpoint", file) == ["three"]
    assert until_caught_up("--checkpoint", file, "--name", "b") == ["one", "two", "three"]
    assert kept_in(Path(file)) == {TOPIC: 3, "b": 3}


def test_the_follow_command_can_store_its_position_as_a_cursor_on_the_broker() -> None:
    """The cursor has a name."""
    assert until_caught_up("--cursor", "billing") == ["one", "two"]
    append("three")
    assert until_caught_up("--cursor", "billing") == ["three"]
    with SubscriberClient() as client:
        assert client.cursors.get(CURSOR).seq == 3


def test_the_follow_command_stops_at_the_requested_number_of_records(tmp_path: Path) -> None:
    """The next run has the rest."""
    file = str(tmp_path / "positions.db")
    result = pullstream("follow", "orders", "--max-messages", "1", "--checkpoint", file)
    assert (result.code, result.lines, result.stderr) == (0, ["one"], "stopped after 1\n")
    assert until_caught_up("--checkpoint", file) == ["two"]


def test_the_follow_command_prints_its_position_and_gaps_in_the_log_on_stderr() -> None:
    """Notes on stderr give the position and the gaps."""
    with SubscriberClient() as client:
        client.feeds.put(TOPIC, {"cap_records": 1})
    result = pullstream("follow", "orders", "--until-caught-up")
    gap, caught_up, stopped = result.stderr.splitlines()
    assert gap == f"{TOPIC}: lost 1 to 1 (cap)"
    assert caught_up.startswith("caught up at 2, 20")
    assert stopped == "stopped after 2"


def test_the_follow_command_reads_a_recreated_topic_from_its_beginning_and_prints_a_note(
    tmp_path: Path,
) -> None:
    """The topic is read from its beginning."""
    file = str(tmp_path / "positions.db")
    until_caught_up("--checkpoint", file)
    assert pullstream("topics", "delete", "orders").code == 0
    append("anew")
    result = pullstream("follow", "orders", "--until-caught-up", "--checkpoint", file)
    assert result.lines == ["anew"]
    assert f"{TOPIC}: deleted and recreated; its numbers start again\n" in result.stderr


def test_the_follow_command_with_json_prints_an_object_for_each_record_and_event() -> None:
    """All objects are on stdout, in order."""
    result = pullstream("follow", "orders", "--until-caught-up", "--after", "1", "--json")
    record, caught_up, closed = result.objects
    assert (record["event"], record["topic"]) == ("record", TOPIC)
    assert (record["messageId"], record["data"]) == ("2", "two")
    assert (caught_up["event"], caught_up["seq"]) == ("caught-up", 2)
    assert (closed["event"], closed["reason"], closed["seq"]) == ("closed", "stopped", 2)
    assert result.stderr == ""


def test_the_follow_command_applies_its_filter_and_exclude_node_options_to_records() -> None:
    """The options work as for every reader."""
    with SubscriberClient() as client:
        client.feeds.append(TOPIC, [{"data": b"mine", "attributes": {"node": "a"}}])
    assert until_caught_up("--exclude-node", "a") == ["one", "two"]
    assert until_caught_up("--message-filter", 'attributes.node = "a"') == ["mine"]


def test_the_follow_command_fails_for_a_missing_topic_unless_the_create_option_is_given() -> None:
    """The error is one line, or `--create` makes the topic."""
    assert "Error: NOT_FOUND: " in failure("follow", "nothing", "--until-caught-up")
    result = pullstream("follow", "nothing", "--until-caught-up", "--create")
    assert (result.code, result.stdout) == (0, b"")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--checkpoint", "a", "--cursor", "b"], "not both"),
        (["--name", "a"], "--checkpoint"),
        (["--checkpoint", ":memory:"], "would save nothing"),
        (["--checkpoint", ""], "would save nothing"),
        (["--after", "soon"], "tail"),
        (["--after", "9" * 20], "it must be between 0 and"),
        (["--after", "9" * 5000], "--after"),
    ],
)
def test_the_follow_command_refuses_options_that_exclude_each_other(
    options: list[str], complaint: str
) -> None:
    """The error comes before any action."""
    assert complaint in usage_error("follow", "orders", *options)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    with command("follow", "orders", "--checkpoint", str(tmp_path / "positions.db")) as running:
        yield running


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_follow_command_ended_by_a_signal_stores_the_position_after_the_printed_records(
    number: int, code: int, process: Process, tmp_path: Path
) -> None:
    """The position after the printed records is stored, and there is no traceback."""
    assert [next_line(process), next_line(process)] == [b"one\n", b"two\n"]
    process.send_signal(number)
    _, stderr = process.communicate()
    assert process.returncode == code
    assert stderr.decode().splitlines()[-1] == "stopped after 2"
    assert kept_in(tmp_path / "positions.db")[TOPIC] == 2


def test_the_follow_command_ends_when_the_reader_of_its_output_closes(
    process: Process, tmp_path: Path
) -> None:
    """In `pullstream follow | head -1`, the position stays before unread records."""
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    process.stdout.close()
    append("three")
    assert process.wait() == 1
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    assert kept_in(tmp_path / "positions.db")[TOPIC] == 2


def test_the_follow_command_prints_an_error_once_and_exits_with_1() -> None:
    """The topic does not exist."""
    error = failure("follow", "nothing")
    assert error.startswith("Error: ")
    assert error.count("\n") == 1
