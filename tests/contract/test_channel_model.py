"""Whatever the network does, what channels promise is kept; and each part of the protocol is needed
for that."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pytest

from protocol.channels import Hub
from protocol.messages import channels_pb2 as channels
from subscriber.listen.interest import Interest
from subscriber.listen.link import Link

from .channel_world import Broken, World

RUNS = 2000
# A mutant is found within so many.
RUNS_OF_A_MUTANT = 1000


def run_many(runs: int, **mutant: Any) -> None:
    for seed in range(runs):
        try:
            World(seed, **mutant).run()
        except Broken as broken:
            raise Broken(f"run {seed}: {broken}") from broken


def test_nothing_is_lost_doubled_or_disordered_without_a_word() -> None:
    """And in the end the publisher knows what the subscriber wants, and tells it."""
    run_many(RUNS)


class TrimOnSend(Hub):
    """Forgets what it has sent, whether it arrives or not."""

    def finish_poll(self, poll: Any, now: float) -> Any:
        response = super().finish_poll(poll, now)
        poll.session.mailbox.acknowledge(self._seq)
        return response


class NoIncarnation(Hub):
    """Has one life, whatever happens to it."""

    def __init__(self, limits: Any, **_: Any) -> None:
        super().__init__(limits, new_incarnation=lambda: 1)


class NoBatchNumber(Hub):
    """Applies a batch again that comes again."""

    def commands(
        self, request: channels.CommandsRequest, now: float, owner: Hashable = None
    ) -> Any:
        session = self._sessions.get((owner, request.subscriber_id))
        if session is not None:
            session.batch_no = 0
        return super().commands(request, now, owner)


class NoReplace(Link):
    """Tells a new life of its session nothing of what the old one knew."""

    def _meet(self, incarnation: int, *, knows_all: bool) -> Any:
        reset = self._queue.reset

        def forget(interests: Iterable[Interest]) -> None:
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
def test_each_part_of_the_protocol_is_needed(mutant: dict[str, Any]) -> None:
    """Without it, a promise is broken before long."""
    with pytest.raises(Broken):
        run_many(RUNS_OF_A_MUTANT, **mutant)
