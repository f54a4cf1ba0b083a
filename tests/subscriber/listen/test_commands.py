"""The queue of commands: batches, refusals, and resets."""

from __future__ import annotations

from pullstream.listen.commands import Command, CommandQueue
from pullstream.listen.subscription import ChannelSubscription


def command(key: str, *, subscribe: bool = True) -> Command:
    return Command(ChannelSubscription("c", key, on_message=print), subscribe)


def sent(queue: CommandQueue) -> list[str]:
    """Mark the next batch as sent, and return its keys."""
    assert queue.batch is not None
    queue.batch.is_sent = True
    return [str(each.interest.key) for each in queue.batch.commands]


def queue_of(keys: str, max_batch: int = 10) -> CommandQueue:
    queue = CommandQueue(max_batch)
    for key in keys:
        queue.add(command(key))
    return queue


def test_a_listener_sends_its_first_command_alone_and_later_commands_in_full_batches() -> None:
    queue, batches = queue_of("abcdef", max_batch=3), []
    while queue.batch is not None:
        batches.append(sent(queue))
        queue.applied()
    assert batches == [["a"], ["b", "c", "d"], ["e", "f"]]
    queue.add(command("g"))
    assert sent(queue) == ["g"]


def test_only_the_first_command_batch_of_a_listener_replaces_the_publishers_subscriptions() -> None:
    queue = queue_of("ab")
    kinds = []
    for _ in range(2):
        assert queue.batch is not None
        kinds.append((queue.batch.number, queue.batch.replace))
        queue.applied()
    assert kinds == [(1, True), (2, False)]


def test_a_listener_retries_a_failed_command_batch_with_the_same_batch_number() -> None:
    """The publisher knows by the batch's number whether it was applied."""
    queue = queue_of("a")
    first = queue.batch
    sent(queue)
    queue.failed()
    assert queue.batch is first
    assert first is not None
    assert not first.is_sent


def test_a_listener_halves_a_refused_command_batch_until_the_refused_command_is_alone() -> None:
    """The others are applied, in order."""
    queue, applied, culprits = queue_of("-abcdefgh"), [], []
    while queue.batch is not None:
        keys = sent(queue)
        if "f" in keys:
            culprit = queue.refused()
            culprits += [] if culprit is None else [culprit.interest.key]
        else:
            applied += [each.interest.key for each in queue.applied()]
    assert (applied, culprits) == (list("-abcdegh"), ["f"])


def test_after_a_refused_first_batch_a_listeners_next_batch_replaces_its_channels() -> None:
    """The refused batch has replaced nothing."""
    queue = queue_of("ab")
    sent(queue)
    queue.refused()
    assert queue.batch is not None
    assert queue.batch.replace


def test_a_listener_reset_sends_the_commands_of_all_subscriptions_again() -> None:
    """The batch in flight is awaited, and its result is ignored."""
    queue = queue_of("abc")
    sent(queue)
    everything = [ChannelSubscription("c", key, on_message=print) for key in "xy"]
    queue.reset(everything)
    assert queue.batch is not None
    assert queue.batch.is_superseded
    assert queue.applied() == []
    assert queue.batch.replace
    assert sent(queue) == ["x", "y"]


def test_a_listener_reset_drops_a_command_batch_that_waits_for_a_retry() -> None:
    queue = queue_of("a")
    sent(queue)
    queue.failed()
    queue.reset([ChannelSubscription("c", "x", on_message=print)])
    assert sent(queue) == ["x"]


def test_a_command_batch_that_fails_after_a_listener_reset_is_not_retried() -> None:
    queue = queue_of("a")
    sent(queue)
    queue.reset([ChannelSubscription("c", "x", on_message=print)])
    queue.failed()
    assert sent(queue) == ["x"]


def test_a_command_batch_refused_after_a_listener_reset_fails_no_subscription() -> None:
    queue = queue_of("a")
    sent(queue)
    queue.reset([ChannelSubscription("c", "x", on_message=print)])
    assert queue.refused() is None
    assert sent(queue) == ["x"]


def test_an_accepted_or_refused_empty_command_batch_changes_no_channel_subscription() -> None:
    """The batch may be accepted or refused. Commands added meanwhile come after it."""
    queue = queue_of("a")
    queue.applied()
    for end in (queue.applied, queue.refused):
        queue.add_nothing()
        assert sent(queue) == []
        queue.add(command("b"))
        assert not end()
        assert sent(queue) == ["b"]
        queue.applied()
    assert queue.batch is None


def test_a_listener_sends_no_empty_command_batch_while_another_batch_is_unanswered() -> None:
    queue = queue_of("a")
    queue.add_nothing()
    queue.applied()
    assert queue.batch is None
