"""Groups of messages are cut and picked together with their rows."""

from __future__ import annotations

from pullstream.spark.rows.columns import Columns
from pullstream.spark.rows.rows import to_batch
from pullstream.spark.session.message_group import MessageGroup, rows_of
from pullstream.spark.spool.segment import ACK_ID
from tests.subscriber.spark.session.messages import batch, flat


def test_rows_of_a_spark_message_group_have_the_ack_id_of_each_message() -> None:
    """The other columns are those of the data source."""
    messages = batch(["a", "b"])
    rows = rows_of([MessageGroup.of_arrived(messages, None)], None)
    assert rows.column(ACK_ID).to_pylist() == ["a/1", "b/1"]
    encoded = [message.received.SerializeToString() for message in messages]
    assert rows.drop_columns([ACK_ID]) == to_batch(Columns(encoded))


def test_rows_of_a_spark_message_group_have_the_subscription_if_configured() -> None:
    """The settings decide whether there is such a column, also for rows that are made late."""
    name = "projects/p/subscriptions/s"
    early = MessageGroup.of_arrived(batch(["a"]), name)
    late = MessageGroup(["b"], batch(["b"]), None)
    assert rows_of([early, late], name).column("subscription").to_pylist() == [name] * 2


def test_the_first_messages_of_a_spark_message_group_can_be_split_off_with_their_rows() -> None:
    """The other messages stay; both keep their rows."""
    messages = batch(["a", "b", "c"])
    group = MessageGroup.of_arrived(messages, None)
    first = group.take_first(2)
    assert (first.keys, first.messages) == (["a", "b"], messages[:2])
    assert (group.keys, group.messages) == (["c"], messages[2:])
    rows = [rows_of([one], None).column("message_id").to_pylist() for one in (first, group)]
    assert rows == [["a", "b"], ["c"]]


def test_splitting_a_spark_message_group_without_rows_builds_no_rows() -> None:
    """Missing rows are made when they are needed."""
    group = MessageGroup(["a", "b", "c"], batch(["a", "b", "c"]), None)
    group.keep_only([0, 2])
    first = group.take_first(1)
    assert (first.rows, group.rows) == (None, None)
    assert flat([first, group]) == [*first.messages, *group.messages]
    assert rows_of([first, group], None).column("message_id").to_pylist() == ["a", "c"]


def test_a_spark_message_group_knows_its_oldest_message_after_each_change() -> None:
    """The order of arrival need not be the order of publishing."""
    messages = batch(["a", "b", "c", "d"], published=[40, 10.5, 20, 30])
    for group in (
        MessageGroup.of_arrived(messages, None),
        MessageGroup(["a", "b", "c", "d"], list(messages), None),
    ):
        assert group.oldest_publish_time == 10.5
        assert group.take_first(1).oldest_publish_time == 40
        group.keep_only([1, 2])
        assert group.oldest_publish_time == 20
        group.keep_only([])
        assert group.oldest_publish_time is None
