"""Model test of channels on an unreliable network, and mutants without one part of the protocol."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pytest

from pullstream.listen.session import ListenSession
from pullstream.listen.subscription import ChannelSubscription
from pullstream_protocol.channels.core import ChannelCore
from pullstream_protocol.messages import channels_pb2 as channels

from .channel_world import Broken, World

RUNS = 2000
# Each mutant fails within this many runs.
RUNS_OF_A_MUTANT = 1000


def run_many(runs: int, **mutant: Any) -> None:
    for seed in range(runs):
        try:
            World(seed, **mutant).run()
        except Broken as broken:
            raise Broken(f"run {seed}: {broken}") from broken


def test_every_message_lost_or_reordered_by_random_channel_calls_is_reported() -> None:
    """At the end the publisher knows the subscriptions of the client, and delivers to them."""
    run_many(RUNS)


class TrimOnSend(ChannelCore):
    """Forgets a message when it is sent, whether it arrives or not."""

    def finish_poll(self, poll: Any, now: float) -> Any:
        response = super().finish_poll(poll, now)
        poll.session.mailbox.acknowledge(self._seq)
        return response


class NoIncarnation(ChannelCore):
    """Uses the same incarnation after every restart."""

    def __init__(self, limits: Any, **_: Any) -> None:
        super().__init__(limits, new_incarnation=lambda: 1)


class NoBatchNumber(ChannelCore):
    """Applies a repeated batch again."""

    def commands(
        self, request: channels.CommandsRequest, now: float, owner: Hashable = None
    ) -> Any:
        session = self._sessions.get((owner, request.subscriber_id))
        if session is not None:
            session.batch_no = 0
        return super().commands(request, now, owner)


class NoReplace(ListenSession):
    """Does not repeat its subscriptions to a new life of its session."""

    def _meet(self, incarnation: int, *, knows_all: bool) -> Any:
        reset = self._queue.reset

        def forget(interests: Iterable[ChannelSubscription]) -> None:
            reset(interest for interest in interests if not interest.is_answered)

        self._queue.reset = forget  # type: ignore[method-assign]
        return super()._meet(incarnation, knows_all=knows_all)


@pytest.mark.parametrize(
    "mutant",
    [
        {"hub": TrimOnSend},
        {"hub": NoIncarnation},
        {"hub": NoBatchNumber},
        {"link": NoReplace},
    ],
    ids=["trim on send", "no incarnation", "no batch number", "no replace"],
)
def test_the_model_test_of_channels_fails_if_any_part_of_the_protocol_is_removed(
    mutant: dict[str, Any],
) -> None:
    """A mutant without this part breaks a promise."""
    with pytest.raises(Broken):
        run_many(RUNS_OF_A_MUTANT, **mutant)
