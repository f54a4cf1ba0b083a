"""Deletes of many records, which run in steps."""

from __future__ import annotations

import pytest

from pullstream_emulator.engine import Record
from pullstream_emulator.logs import deletion
from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.emulator.logs.driver import TOPIC, Driver, seqs


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Return a feed with 100 records, half of them with the tag b, and steps of ten."""
    monkeypatch.setattr(deletion, "MAX_EXAMINED", 10)
    monkeypatch.setattr(deletion, "MAX_DELETED", 20)
    driver = Driver()
    driver.put()
    for _ in range(50):
        driver.append("x", tag="a")
        driver.append("x", tag="b")
    return driver


def request(before: int = 0, tag: str = "") -> feeds.DeleteMessagesRequest:
    text = f'attributes.tag = "{tag}"' if tag else ""
    return feeds.DeleteMessagesRequest(topic=TOPIC, before_seq=before, filter=text)


@pytest.mark.parametrize(
    ("before", "tag", "deleted"), [(0, "b", 50), (0, "c", 0), (61, "", 60), (200, "", 100)]
)
def test_a_step_of_a_record_delete_examines_and_deletes_few_records(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, before: int, tag: str, deleted: int
) -> None:
    parsed = 0
    message = Record.message

    def counted(record: Record) -> object:
        nonlocal parsed
        parsed += 1
        return message(record)

    monkeypatch.setattr(Record, "message", counted)
    work = driver.feeds.deletion(request(before, tag))
    has_more = True
    while has_more:
        parsed, count = 0, driver.feed().count
        has_more = work.work()
        assert parsed <= 10
        assert count - driver.feed().count <= 20
    count = driver.feed().count
    assert work.finish() == deleted
    assert count - driver.feed().count <= 20
    assert driver.feed().count == 100 - deleted


def test_a_step_of_a_record_delete_copies_few_bytes(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step examines only one of the large records."""
    monkeypatch.setattr(deletion, "MAX_EXAMINED_BYTES", 100)
    driver.append(*["x" * 1000] * 3, tag="b")
    work = driver.feeds.deletion(request(tag="b"))
    steps = 1
    while work.work():
        steps += 1
    assert steps > 10 + 3
    assert work.finish() == 53


def test_records_appended_during_a_delete_with_a_filter_are_not_deleted(driver: Driver) -> None:
    work = driver.feeds.deletion(request(tag="b"))
    assert work.work()
    driver.append("new", tag="b")
    while work.work():
        pass
    assert work.finish() == 50
    assert seqs(driver.read(after=99).messages) == [101]


def test_the_count_of_a_record_delete_excludes_records_trimmed_by_the_cap_in_the_meantime(
    driver: Driver,
) -> None:
    work = driver.feeds.deletion(request(tag="b"))
    while work.work():
        pass
    deleted = 100 - driver.feed().count
    assert deleted
    driver.put(cap_records=1)
    assert work.finish() == deleted + 1


def test_deleting_a_topic_ends_a_delete_of_its_records_that_is_under_way(driver: Driver) -> None:
    work = driver.feeds.deletion(request(tag="b"))
    assert work.work()
    driver.delete_topic()
    with pytest.raises(NotFound, match="was deleted before all its records were"):
        work.work()
