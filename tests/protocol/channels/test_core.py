"""Special cases of ChannelCore. tests/contract tests its promises over the wire."""

from __future__ import annotations

import pytest

from pullstream_protocol.channels import ChannelLimits
from pullstream_protocol.channels.core import ChannelCore
from pullstream_protocol.channels.session import Poll
from pullstream_protocol.errors import InvalidArgument, ResourceExhausted
from pullstream_protocol.messages import channels_pb2 as channels

MESSAGE = b"\x0a\x01x"


def hub(**limits: float) -> ChannelCore:
    numbers = iter(range(1, 1000))
    return ChannelCore(ChannelLimits(**limits), new_incarnation=lambda: next(numbers))  # type: ignore[arg-type]


def subscribe(to: ChannelCore, who: str, *keys: str, now: float = 0.0) -> channels.CommandsResponse:
    commands = [channels.Command(channel="c", key=key, subscribe=True) for key in keys]
    request = channels.CommandsRequest(
        subscriber_id=who, batch_no=1, replace=True, commands=commands
    )
    return to.commands(request, now)


def never(poll: Poll) -> None:
    raise AssertionError("woken, though it has nothing to be told")


def test_a_channel_publisher_refuses_subscribers_beyond_its_maximum_number() -> None:
    """The refused subscribers leave no state, and the existing subscribers continue."""
    full = hub(sessions=1)
    subscribe(full, "one", "a")
    with pytest.raises(ResourceExhausted):
        subscribe(full, "two", "a")
    with pytest.raises(ResourceExhausted):
        full.begin_poll(channels.PollRequest(subscriber_id="two"), 0.0, never)
    assert full.statistics().subscribers == 1


def test_a_channel_publisher_refuses_a_subscriber_with_more_keys_than_the_maximum() -> None:
    """The batch is refused as a whole. The unsubscribes of the batch make room first."""
    small = hub(interests=2)
    subscribe(small, "one", "a", "b")
    more = channels.CommandsRequest(subscriber_id="one", incarnation=1, batch_no=2)
    more.commands.add(channel="c", key="d", subscribe=True)
    with pytest.raises(ResourceExhausted):
        small.commands(more, 0.0)
    more.commands.add(channel="c", key="a", subscribe=False)
    assert small.commands(more, 0.0).applied
    assert small.statistics().interests == 2


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"subscriber_id": ""}, "subscriber_id"),
        ({"subscriber_id": "x" * 257}, "subscriber_id"),
        ({"batch_no": 0}, "batch_no"),
        ({"commands": [channels.Command(subscribe=True)]}, "channel"),
        ({"commands": [channels.Command(channel="x" * 1025)]}, "channel"),
        ({"commands": [channels.Command(channel="c", key="é" * 513)]}, "key"),
        ({"commands": [channels.Command(channel="c")] * 10_001}, "commands"),
    ],
)
def test_a_channel_publisher_refuses_invalid_commands_of_a_subscriber(
    fields: dict[str, object], field: str
) -> None:
    """The error names the problem, and nothing changes."""
    whole: dict[str, object] = {"subscriber_id": "one", "batch_no": 1, "replace": True, **fields}
    empty = hub()
    with pytest.raises(InvalidArgument, match=f"^400 {field}: "):
        empty.commands(channels.CommandsRequest(**whole), 0.0)  # type: ignore[arg-type]
    assert empty.statistics().subscribers == 0


@pytest.mark.parametrize("field", ["max_processed_seq", "max_messages", "max_bytes"])
def test_a_channel_publisher_refuses_invalid_polls_of_a_subscriber(field: str) -> None:
    request = channels.PollRequest(subscriber_id="one")
    setattr(request, field, -1)
    with pytest.raises(InvalidArgument, match=f"^400 {field}: "):
        hub().begin_poll(request, 0.0, never)


def test_the_failure_of_a_channel_is_delivered_once_to_each_of_its_subscribers() -> None:
    """Each subscriber gets one notice, independent of the number of its keys."""
    one = hub()
    subscribe(one, "one", "a", "b")
    subscribe(one, "two", "b")
    assert one.publish_failure("c", None, "over") == 2
    assert one.publish_failure("c", "a", "over") == 1
    assert one.statistics().waiting == 3


def test_a_channel_core_has_no_due_time_before_the_first_and_after_the_last_subscriber() -> None:
    """The first subscriber starts the sweeps, and the end of the last one stops them."""
    due: list[float] = []
    idle = hub()
    idle.on_due = due.append
    assert idle.next_due() is None
    subscribe(idle, "one", "a", now=5.0)
    subscribe(idle, "two", "a", now=6.0)
    assert (due, idle.next_due()) == ([35.0], 35.0)
    idle.unregister("one")
    idle.unregister("two")
    idle.advance(35.0)
    assert idle.next_due() is None


def test_a_waiting_channel_poll_is_woken_once_for_several_messages() -> None:
    """Messages that are published before its end are part of its answer."""
    one = hub()
    woken: list[Poll] = []
    subscribe(one, "one", "a")
    poll = one.begin_poll(channels.PollRequest(subscriber_id="one"), 0.0, woken.append)
    for _ in range(3):
        one.publish("c", "a", lambda seq: MESSAGE)
    assert woken == [poll]
    assert len(one.finish_poll(poll, 0.0).items) == 3
    assert one.statistics().parked == 0


def test_a_new_channel_poll_is_answered_at_once_if_messages_are_waiting() -> None:
    """The poll is woken only once, even if further messages come before its end."""
    one = hub()
    woken: list[Poll] = []
    subscribe(one, "one", "a")
    one.publish("c", "a", lambda seq: MESSAGE)
    poll = one.begin_poll(channels.PollRequest(subscriber_id="one"), 0.0, woken.append)
    assert woken == [poll]
    one.clear()
    assert woken == [poll]


def test_a_channel_poll_withdrawn_by_its_caller_takes_no_message() -> None:
    one = hub()
    subscribe(one, "one", "a")
    poll = one.begin_poll(channels.PollRequest(subscriber_id="one"), 0.0, never)
    one.withdraw_poll(poll, 0.0)
    one.publish("c", "a", lambda seq: MESSAGE)
    assert (one.statistics().parked, one.statistics().waiting) == (0, 1)


def test_the_session_timeout_of_a_channel_subscriber_counts_from_the_end_of_its_poll() -> None:
    """The sweep comes between a poll whose connection broke and the next poll."""
    one = hub()
    subscribe(one, "one", "a")
    poll = one.begin_poll(channels.PollRequest(subscriber_id="one"), 0.0, lambda poll: None)
    one.withdraw_poll(poll, 299.9)
    one.advance(300.0)
    assert one.statistics().subscribers == 1
    one.advance(600.0)
    assert one.statistics().subscribers == 0


def test_two_callers_with_the_same_channel_subscriber_id_have_separate_sessions() -> None:
    """Another caller with the same ID has a separate session, and does not end the first."""
    one = hub()
    subscribe(one, "one", "a")
    one.publish("c", "a", lambda seq: MESSAGE)
    request = channels.PollRequest(subscriber_id="one")
    poll = one.begin_poll(request, 0.0, lambda poll: None, owner="stranger")
    assert not poll.is_ready
    one.unregister("one", owner="stranger")
    assert one.begin_poll(request, 0.0, lambda poll: None).is_ready
    assert one.statistics().subscribers == 1


def test_a_channel_failure_notice_dropped_from_a_full_mailbox_ends_the_subscriber_session() -> None:
    """The subscriber would otherwise wait for ever. It starts again, and the others continue."""
    small = hub(mailbox_items=2)
    subscribe(small, "one", "a", "b")
    subscribe(small, "two", "a")
    small.publish_failure("c", "a", "over")
    for _ in range(2):
        small.publish("c", "b", lambda seq: MESSAGE)
    request = channels.PollRequest(subscriber_id="one", incarnation=1)
    poll = small.begin_poll(request, 0.0, lambda poll: None)
    assert poll.is_ready
    assert small.finish_poll(poll, 0.0).incarnation == 3
    assert small.statistics().interests == 1


def test_creating_channel_limits_with_a_value_of_zero_raises_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"^mailbox_bytes is 0; it must be above 0$"):
        ChannelLimits(mailbox_bytes=0)
