"""The machine against a model of broker, network and handler, in thousands of random runs.

The same model runs against machines that lack one step each, and must find the failure.
"""

from __future__ import annotations

from typing import Any

import pytest

from pullstream.logs.follow.events import Checkpoint
from pullstream.logs.follow.machine import (
    Action,
    FollowMachine,
    LiveStreamState,
    ProgressEvents,
    Read,
)
from pullstream.logs.follow.records import LiveBuffer, Record, RecordRange
from tests.subscriber.logs.follow.model import BUFFER, NewMachine, Violation, World

RUNS = 5_000
# The number of runs that find a machine without one of its steps.
MUTANT_RUNS = 300


def run_many(runs: int, new_machine: NewMachine = FollowMachine) -> None:
    for seed in range(runs):
        World(seed, new_machine).run()


def test_a_follower_delivers_every_record_of_the_log_once_in_order_or_reports_a_gap() -> None:
    """Every record of the log comes once and in order, or a gap reports it."""
    run_many(RUNS)


def test_the_model_test_of_the_follower_reaches_every_state_and_event_of_the_follower() -> None:
    """A model without events would prove nothing."""
    worlds = [World(seed) for seed in range(200)]
    for world in worlds:
        world.run()
    reported = {type(event).__name__ for world in worlds for event in world.witness.reported}
    assert reported == {"CaughtUp", "FellBehind", "Gap"}
    causes = {getattr(event, "cause", "") for world in worlds for event in world.witness.reported}
    assert {"overflow", "stream lost", "gap"} <= causes
    assert sum(len(world.witness.handed) for world in worlds) > 3_000


class NoLastPull(FollowMachine):
    def _needs_last_pull(self) -> bool:
        return False


class StreamAfterLastPull(NoLastPull):
    """Pulls once more near the end, and only then lets the stream begin."""

    _has_pulled = False

    def _pull(self, now: float) -> Action:
        if self._is_near and not self._has_pulled:
            self._has_pulled = True
            return Read(self.cursor)
        self._has_pulled = False
        return super()._pull(now)


class NoDedupe(FollowMachine):
    def _unseen(self, run: RecordRange) -> list[Record]:
        return list(run.records)


class NoGapCheck(FollowMachine):
    def _joins(self, run: RecordRange) -> bool:
        return True


class NoEpochCheck(FollowMachine):
    def _is_other_incarnation(self, epoch: int) -> bool:
        return False


class KeepsOldBuffer(LiveStreamState):
    """Mistakes the records of an earlier stream for the new one's."""

    def end(self) -> bool:
        was_wanted, self.is_wanted = self.is_wanted, False
        return was_wanted


def keeps_old_buffer(*args: Any) -> FollowMachine:
    machine = FollowMachine(*args)
    machine._stream = KeepsOldBuffer(args[1])
    return machine


class ReportsEachTime(ProgressEvents):
    def caught_up(self, position: Checkpoint | None) -> None:
        self.is_caught_up = False
        super().caught_up(position)


def reports_each_time(*args: Any) -> FollowMachine:
    machine = FollowMachine(*args)
    machine._progress = ReportsEachTime(machine._actions.append)
    return machine


class DropsNewest(LiveBuffer):
    def add(self, run: RecordRange) -> None:
        if len(self) + run.weight <= self._max_records:
            super().add(run)


def drops_newest(*args: Any) -> FollowMachine:
    machine = FollowMachine(*args)
    machine._stream.buffer = DropsNewest(BUFFER, 1 << 20)
    return machine


@pytest.mark.parametrize(
    "mutant",
    [
        NoLastPull,
        StreamAfterLastPull,
        NoDedupe,
        NoGapCheck,
        NoEpochCheck,
        keeps_old_buffer,
        reports_each_time,
        drops_newest,
    ],
)
def test_the_model_test_of_the_follower_fails_for_every_mutant_of_the_follower(
    mutant: NewMachine,
) -> None:
    """Examples are no last pull, a late stream, no deduplication, and no search for holes."""
    with pytest.raises((Violation, RuntimeError)):
        run_many(MUTANT_RUNS, mutant)
