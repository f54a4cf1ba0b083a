"""The hub's corners; what it promises over the wire is in tests/contract."""

from __future__ import annotations

import pytest

from protocol.channels import ChannelLimits, Hub
from protocol.channels.session import Poll
from protocol.errors import InvalidArgument, ResourceExhausted
from protocol.messages import channels_pb2 as channels

MESSAGE = b"\x0a\x01x"


def hub(**limits: float) -> Hub:
    numbers = iter(range(1, 1000))
    return Hub(ChannelLimits(**limits), new_incarnation=lambda: next(numbers))  # type: ignore[arg-type]


def subscribe(to: Hub, who: str, *keys: str, now: float = 0.0) -> channels.CommandsResponse:
    commands = [channels.Command(channel="c", key=key, subscribe=True) for key in keys]
    request = channels.CommandsRequest(
        subscriber_id=who, batch_no=1, replace=True, commands=commands
    )
    return to.commands(request, now)


def never(poll: Poll) -> None:
    raise AssertionError("woken, though it has nothing to be told")


def test_too_many_subscribers_are_refused() -> None:
    """Nothing of them is kept; those that are there go on."""
    full = hub(sessions=1)
    subscribe(full, "one", "a")
    with pytest.raises(ResourceExhausted):
        subscribe(full, "two", "a")
    with pytest.raises(ResourceExhausted):
        full.begin_poll(channels.PollRequest(subscriber_id="two"), 0.0, never)
    assert full.statistics().subscribers == 1


def test_too_many_subscriptions_of_one_are_refused() -> None:
    """The batch that would have them, as a whole; what it unsubscribes makes room first."""
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
def test_commands_that_make_no_sense_are_refused(fields: dict[str, object], field: str) -> None:
    """By the name of what is wrong; and nothing is changed."""
    whole: dict[str, object] = {"subscriber_id": "one", "batch_no": 1, "replace": True, **fields}
    empty = hub()
    with pytest.raises(InvalidArgument, match=f"^400 {field}: "):
        empty.commands(channels.CommandsRequest(**whole), 0.0)  # type: ignore[arg-type]
    assert empty.statistics().subscribers == 0


@pytest.mark.parametrize("field", ["max_processed_seq", "max_messages", "max_bytes"])
def test_polls_that_make_no_sense_are_refused(field: str) -> None:
    request = channels.PollRequest(subscriber_id="one")
    setattr(request, field, -1)
    with pytest.raises(InvalidArgument, match=f"^400 {field}: "):
        hub().begin_poll(request, 0.0, never)


def test_a_failed_channel_is_told_to_all_of_its_subscribers() -> None:
    """Each once, whatever it is subscribed to."""
    one = hub()
    subscribe(one, "one", "a", "b")
    subscribe(one, "two", "b")
    assert one.publish_failure("c", None, "over") == 2
    assert one.publish_failure("c", "a", "over") == 1
    assert one.statistics().waiting == 3


def test_nobody_there_nothing_due() -> None:
    """The first subscriber begins the sweeps, and the last one's end ends them."""
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


def test_a_poll_that_was_answered_is_woken_once() -> None:
    """What is published until it is finished goes with it."""
    one = hub()
    woken: list[Poll] = []
    subscribe(one, "one", "a")
    poll = one.begin_poll(channels.PollRequest(subscriber_id="one"), 0.0, woken.append)
    for _ in range(3):
        one.publish("c", "a", lambda seq: MESSAGE)
    assert woken == [poll]
    assert len(one.finish_poll(poll, 0.0).items) == 3
    assert one.statistics().parked == 0


def test_a_poll_that_is_ready_from_the_first_is_woken_at_once() -> None:
    """And no more, whatever comes until it is finished."""
    one = hub()
    woken: list[Poll] = []
    subscribe(one, "one", "a")
    one.publish("c", "a", lambda seq: MESSAGE)
    poll = one.begin_poll(channels.PollRequest(subscriber_id="one"), 0.0, woken.append)
    assert woken == [poll]
    one.clear()
    assert woken == [poll]


def test_a_withdrawn_poll_takes_nothing() -> None:
    one = hub()
    subscribe(one, "one", "a")
    poll = one.begin_poll(channels.PollRequest(subscriber_id="one"), 0.0, never)
    one.withdraw_poll(poll, 0.0)
    one.publish("c", "a", lambda seq: MESSAGE)
    assert (one.statistics().parked, one.statistics().waiting) == (0, 1)


def test_who_was_cut_off_a_moment_ago_is_not_forgotten() -> None:
    """The sweep comes between a poll whose connection broke and the next one."""
    one = hub()
    subscribe(one, "one", "a")
    poll = one.begin_poll(channels.PollRequest(subscriber_id="one"), 0.0, lambda poll: None)
    one.withdraw_poll(poll, 299.9)
    one.advance(300.0)
    assert one.statistics().subscribers == 1
    one.advance(600.0)
    assert one.statistics().subscribers == 0


def test_an_id_is_the_owners_own() -> None:
    """Somebody else with the same one has a session of his own, and ends no other."""
    one = hub()
    subscribe(one, "one", "a")
    one.publish("c", "a", lambda seq: MESSAGE)
    request = channels.PollRequest(subscriber_id="one")
    poll = one.begin_poll(request, 0.0, lambda poll: None, owner="stranger")
    assert not poll.is_ready
    one.unregister("one", owner="stranger")
    assert one.begin_poll(request, 0.0, lambda poll: None).is_ready
    assert one.statistics().subscribers == 1


def test_a_failure_that_finds_no_room_ends_the_session() -> None:
    """Its subscriber, who would wait for ever, begins anew; the others go on."""
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


def test_limits_must_be_above_nothing() -> None:
    with pytest.raises(ValueError, match=r"^mailbox_bytes is 0; it must be above 0$"):
        ChannelLimits(mailbox_bytes=0)
