"""Groups of messages are cut and picked together with their rows."""

from __future__ import annotations

from collections.abc import Sequence

from pullstream.columns.portions import Portion
from pullstream.columns.record_batch import to_batch
from pullstream.message import Message
from pullstream.message_fields import Columns
from pullstream.spark.protocol.message_keys import Key
from pullstream.spark.receiving.message_group import MessageGroup, rows_of
from tests.subscriber.spark.receiving.messages import batch, flat, group_of


def without_rows(keys: list[Key], messages: Sequence[Message]) -> MessageGroup:
    def refuse(portions: Sequence[Portion], ack_ids: Sequence[str]) -> None:
        raise AssertionError("there are no portions")

    return MessageGroup(keys, list(messages), None, 0.0, refuse)


def test_rows_of_a_spark_message_group_are_those_of_the_data_source() -> None:
    messages = batch(["a", "b"])
    rows = rows_of([group_of(messages)], None)
    encoded = [message.received.SerializeToString() for message in messages]
    assert rows == to_batch(Columns(encoded))


def test_rows_of_a_spark_message_group_have_the_subscription_if_configured() -> None:
    """The settings decide whether there is such a column, also for rows that are made late."""
    name = "projects/p/subscriptions/s"
    early = group_of(batch(["a"]), name)
    late = without_rows(["b"], batch(["b"]))
    assert rows_of([early, late], name).column("subscription").to_pylist() == [name] * 2


def test_the_first_messages_of_a_spark_message_group_can_be_split_off_with_their_rows() -> None:
    """The other messages stay; both keep their rows."""
    messages = batch(["a", "b", "c"])
    group = group_of(messages)
    first = group.take_first(2)
    assert (first.keys, first.messages) == (["a", "b"], messages[:2])
    assert (group.keys, group.messages) == (["c"], messages[2:])
    rows = [rows_of([one], None).column("message_id").to_pylist() for one in (first, group)]
    assert rows == [["a", "b"], ["c"]]


def test_splitting_a_spark_message_group_without_rows_builds_no_rows() -> None:
    """Missing rows are made when they are needed."""
    group = without_rows(["a", "b", "c"], batch(["a", "b", "c"]))
    group.keep_only([0, 2])
    first = group.take_first(1)
    assert (first.rows, group.rows) == (None, None)
    assert flat([first, group]) == [*first.messages, *group.messages]
    assert rows_of([first, group], None).column("message_id").to_pylist() == ["a", "c"]


def test_a_spark_message_group_knows_its_size_after_each_change() -> None:
    """It counts its units once, because each arrival asks for the size of the whole buffer."""
    messages = batch(["a", "b", "c", "d"], share=10)
    group = group_of(messages)
    assert group.size == 40
    assert group.take_first(1).size == 10
    assert group.size == 30
    (newer,) = batch(["b"], share=25)
    group.replace({"b": newer})
    assert group.size == 45
    group.keep_only([0, 1])
    assert group.size == 35
    group.units = []
    assert group.size == 35


def test_a_spark_message_group_knows_its_oldest_message_after_each_change() -> None:
    """The order of arrival need not be the order of publishing."""
    messages = batch(["a", "b", "c", "d"], published=[40, 10.5, 20, 30])
    for group in (
        group_of(messages),
        without_rows(["a", "b", "c", "d"], messages),
    ):
        assert group.oldest_publish_time == 10.5
        assert group.take_first(1).oldest_publish_time == 40
        group.keep_only([1, 2])
        assert group.oldest_publish_time == 20
        group.keep_only([])
        assert group.oldest_publish_time is None
