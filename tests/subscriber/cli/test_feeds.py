"""`pullstream feeds` and `pullstream routers`, for people, pipes and machines."""

from __future__ import annotations

import pytest

from pullstream_protocol import names
from tests.subscriber.command_line import pullstream, usage_error

pytestmark = pytest.mark.usefixtures("broker")

NEWS = names.topic_path("test-project", "news")


def test_the_feeds_put_command_replaces_all_feed_settings_and_feeds_get_prints_them() -> None:
    """A second put replaces the settings, and settings that it does not name get their defaults."""
    put = pullstream(
        *("feeds", "put", "news", "--ttl", "5s", "--cap-records", "10", "--discard", "reject"),
        *("--durability", "memory", "--idempotency-window", "1m"),
    )
    assert (put.code, put.lines) == (0, [f"{NEWS}: feed created"])
    (feed,) = pullstream("feeds", "get", "news", "--json").objects
    assert feed["config"] == {
        "ttl": "5s",
        "capRecords": "10",
        "discard": "REJECT",
        "durability": "MEMORY",
        "idempotencyWindow": "60s",
        "dedupeNode": True,
    }
    assert pullstream("feeds", "put", "news").lines == [f"{NEWS}: feed updated"]
    assert "config.capRecords: 100000" in pullstream("feeds", "get", "news").lines


def test_the_feeds_read_command_prints_records_that_the_feeds_append_command_added() -> None:
    """`append` prints numbers, and `read` prints data."""
    appended = pullstream("feeds", "append", "news", "a", "b", "--tag", "t", "--attribute", "k=v")
    assert (appended.code, appended.lines) == (0, ["1", "2"])
    assert pullstream("feeds", "read", "news").lines == ["a", "b"]
    assert pullstream("feeds", "read", "news", "--after", "1").lines == ["b"]
    assert pullstream("feeds", "read", "news", "--after", "tail").lines == []
    (first, _) = pullstream("feeds", "read", "news", "--json").objects
    assert first.pop("publishTime").endswith("Z")
    assert first == {
        "event": "record",
        "topic": NEWS,
        "messageId": "1",
        "orderingKey": "",
        "attributes": {"k": "v", "tag": "t"},
        "data": "a",
    }


def test_the_feeds_read_command_stops_at_the_end_of_the_feed_or_at_the_requested_number() -> None:
    """The command makes as many calls as necessary."""
    for _ in range(2):
        pullstream("feeds", "append", "news", *("x" for _ in range(700)))
    assert len(pullstream("feeds", "read", "news").lines) == 1400
    assert len(pullstream("feeds", "read", "news", "--max-messages", "1100").lines) == 1100


def test_the_feeds_read_command_prints_the_sequence_numbers_that_are_lost_in_a_gap() -> None:
    """The gap is a note or a separate object."""
    pullstream("feeds", "put", "news", "--cap-records", "2")
    pullstream("feeds", "append", "news", "a", "b", "c")
    read = pullstream("feeds", "read", "news")
    assert (read.lines, read.stderr) == (["b", "c"], f"{NEWS}: lost 1 to 1 (cap)\n")
    gap, *records = pullstream("feeds", "read", "news", "--json").objects
    assert gap == {
        "event": "gap",
        "topic": NEWS,
        "reason": "cap",
        "fromSeq": 1,
        "toSeq": 1,
        "earliestSeq": 2,
        "headSeq": 3,
    }
    assert [record["messageId"] for record in records] == ["2", "3"]


def test_repeated_feeds_append_commands_with_one_idempotency_key_append_the_records_once() -> None:
    """The same numbers are printed again."""
    for _ in range(2):
        appended = pullstream("feeds", "append", "news", "a", "b", "--idempotency-key", "k")
        assert appended.lines == ["1", "2"]
    assert pullstream("feeds", "read", "news").lines == ["a", "b"]


def test_the_feeds_delete_command_requires_a_sequence_number_or_a_filter() -> None:
    """Messages are deleted by number or filter. A call without either is wrong usage."""
    pullstream("feeds", "append", "news", "a", "b", "c", "--tag", "t")
    assert pullstream("feeds", "delete", "news", "--before-seq", "2").lines == [
        f"{NEWS} deleted: 1"
    ]
    deleted = pullstream(
        "feeds", "delete", "news", "--message-filter", 'attributes.tag = "t"', "--json"
    )
    assert deleted.objects == [{"name": NEWS, "deleted": 2}]
    assert pullstream("feeds", "delete", "news").code == 2
    read = pullstream("feeds", "read", "news")
    assert (read.lines, read.stderr) == ([], "")


def test_the_feeds_list_command_prints_tabs_to_a_pipe_and_a_table_to_a_terminal() -> None:
    """A pipe gets tabs, and people get a table with short names."""
    pullstream("feeds", "append", "news", "a")
    (line,) = pullstream("feeds", "list").lines
    assert line.split("\t")[:4] == [NEWS, "1", "1", "1"]
    head, row = pullstream("feeds", "list", terminal=True).lines
    assert head.split()[:2] == ["topic", "headSeq"]
    assert row.split()[:2] == ["news", "1"]


@pytest.mark.parametrize("after", ["-1", "soon"])
def test_an_invalid_start_position_of_the_feeds_read_command_is_a_usage_error(after: str) -> None:
    """The error names the value."""
    assert after in usage_error("feeds", "read", "news", "--after", after)
