"""Cursors: positions that the broker stores for readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pullstream_emulator.broker import Broker
from pullstream_emulator.storage.storage import Storage
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument, NotFound
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

TOPIC = "projects/p/topics/orders"
OTHER = "projects/p/topics/other"
CURSOR = "projects/p/cursors/billing"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(ManualClock(), storage=Storage(tmp_path))
    for topic in (TOPIC, OTHER):
        messages = [pubsub.PubsubMessage(data=b"x")] * 5
        broker.call("Append", feeds.AppendRequest(topic=topic, messages=messages))
    yield broker
    broker.close()


def put(broker: Broker, seq: int, topic: str = TOPIC, epoch: int = 0) -> feeds.Cursor:
    cursor = feeds.Cursor(name=CURSOR, topic=topic, seq=seq, epoch=epoch)
    made = broker.call("PutCursor", feeds.PutCursorRequest(cursor=cursor))
    assert isinstance(made, feeds.Cursor)
    return made


def get(broker: Broker) -> feeds.Cursor:
    found = broker.call("GetCursor", feeds.GetCursorRequest(name=CURSOR))
    assert isinstance(found, feeds.Cursor)
    return found


def test_get_cursor_returns_the_last_position_stored_by_put_cursor(broker: Broker) -> None:
    """A position may move back. The cursor has the epoch and the time of the put."""
    put(broker, 4)
    made = put(broker, 2)
    assert get(broker) == made
    assert (made.seq, made.epoch) == (2, broker.feeds.feed(TOPIC).epoch)
    assert made.update_time.seconds == int(broker.clock.now())


def test_storing_a_cursor_with_a_position_from_before_a_topic_was_recreated_is_refused(
    broker: Broker,
) -> None:
    """The position is from before the topic was created again, so it has no meaning now."""
    old = put(broker, 3).epoch
    broker.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=TOPIC))
    messages = [pubsub.PubsubMessage(data=b"new")]
    broker.call("Append", feeds.AppendRequest(topic=TOPIC, messages=messages))
    with pytest.raises(NotFound):
        get(broker)
    with pytest.raises(FailedPrecondition, match="created again") as refused:
        put(broker, 1, epoch=old)
    assert refused.value.reason == "CURSOR_OF_OTHER_EPOCH"
    assert put(broker, 1).epoch != old


def test_storing_a_feed_cursor_of_another_topic_under_the_same_name_is_refused(
    broker: Broker,
) -> None:
    """Two readers that use the same name by mistake do not get each other's positions."""
    put(broker, 3)
    with pytest.raises(FailedPrecondition, match="belongs to") as refused:
        put(broker, 1, topic=OTHER)
    assert refused.value.reason == "CURSOR_OF_OTHER_TOPIC"
    assert (get(broker).topic, get(broker).seq) == (TOPIC, 3)


@pytest.mark.parametrize(("seq", "problem"), [(-1, "too small"), (6, "too large")])
def test_storing_a_feed_cursor_at_a_sequence_number_outside_the_topic_is_refused(
    broker: Broker, seq: int, problem: str
) -> None:
    """The error has the value and the limit. The cursor does not change."""
    put(broker, 3)
    with pytest.raises(InvalidArgument, match=rf"cursor\.seq is {problem}.*passed {seq}"):
        put(broker, seq)
    assert get(broker).seq == 3


def test_storing_a_feed_cursor_of_a_missing_topic_is_refused(broker: Broker) -> None:
    """A put does not create the topic."""
    with pytest.raises(NotFound):
        put(broker, 0, topic="projects/p/topics/missing")


def test_getting_a_deleted_cursor_ends_with_not_found(broker: Broker) -> None:
    """A second delete is an error, as for other resources of Pub/Sub."""
    put(broker, 3)
    broker.call("DeleteCursor", feeds.DeleteCursorRequest(name=CURSOR))
    for method, request in (
        ("GetCursor", feeds.GetCursorRequest(name=CURSOR)),
        ("DeleteCursor", feeds.DeleteCursorRequest(name=CURSOR)),
    ):
        with pytest.raises(NotFound):
            broker.call(method, request)


def test_feed_cursors_of_a_project_are_listed_in_pages(broker: Broker) -> None:
    """The list has the cursors of a project, ordered by name."""
    for name in ("bbb", "aaa", "ccc"):
        cursor = feeds.Cursor(name=f"projects/p/cursors/{name}", topic=TOPIC, seq=1)
        broker.call("PutCursor", feeds.PutCursorRequest(cursor=cursor))
    first = broker.call("ListCursors", feeds.ListCursorsRequest(project="projects/p", page_size=2))
    rest = broker.call(
        "ListCursors",
        feeds.ListCursorsRequest(project="projects/p", page_token=first.next_page_token),
    )
    listed = [cursor.name[-3:] for cursor in (*first.cursors, *rest.cursors)]
    assert (listed, rest.next_page_token) == (["aaa", "bbb", "ccc"], "")


def test_feed_cursors_are_kept_across_a_broker_restart(broker: Broker, tmp_path: Path) -> None:
    """The cursors keep their epochs. Cursors of a deleted topic do not survive."""
    kept = put(broker, 3)
    gone = feeds.Cursor(name="projects/p/cursors/gone", topic=OTHER, seq=1)
    broker.call("PutCursor", feeds.PutCursorRequest(cursor=gone))
    broker.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=OTHER))
    broker.close()
    again = Broker(ManualClock(), storage=Storage(tmp_path))
    listed = again.call("ListCursors", feeds.ListCursorsRequest(project="projects/p"))
    assert list(listed.cursors) == [kept]
    assert again.feeds.feed(TOPIC).epoch == kept.epoch
    again.close()
