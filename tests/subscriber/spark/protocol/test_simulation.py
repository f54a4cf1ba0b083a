"""Random interleavings of receivers and engines, with crashes, lose and double nothing."""

from __future__ import annotations

import pytest

from pullstream.spark.protocol.acknowledge import Acknowledge
from tests.subscriber.spark.protocol.random_world import RandomWorld, StepWorld


@pytest.mark.parametrize("acknowledge", Acknowledge)
@pytest.mark.parametrize("block", range(4))
def test_simulated_receivers_and_engines_commit_each_message_once(
    acknowledge: Acknowledge, block: int
) -> None:
    """Each message is in the table once, and a batch that is read again has the same rows.

    With `committed`, no message is acknowledged before. At the end, few files are left.
    """
    for seed in range(125 * block, 125 * (block + 1)):
        world = RandomWorld(seed, acknowledge)
        try:
            world.live()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {acknowledge.value}: {error}") from error


@pytest.mark.parametrize("acknowledge", Acknowledge)
@pytest.mark.parametrize("kind", ["receiver", "engine"])
@pytest.mark.parametrize(
    "trouble", ["crash", "sleep", "long sleep", "no put", "lost answer", "late put"]
)
def test_a_trouble_after_any_step_of_a_party_loses_and_doubles_nothing(
    acknowledge: Acknowledge, kind: str, trouble: str
) -> None:
    """The steps of two batches and more, one after the other."""
    for place in range(1, 60):
        world = StepWorld(acknowledge, kind, place, trouble)
        world.live()
        assert world.is_over
