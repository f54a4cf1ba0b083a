"""A follower killed at arbitrary moments loses no record and repeats few."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from pullstream_emulator import Emulator
from tests.contract.following import followed
from tests.contract.killable_follower import KillableFollower
from tests.subscriber.streaming.fakes import eventually

TOTAL = 1000
EVERY = 20
KILLS = 4


@pytest.mark.parametrize("store", ["file", "cursor"])
def test_a_killed_follower_that_saves_every_n_records_handles_at_most_n_again_c1_2(
    emulator: Emulator, tmp_path: Path, store: str
) -> None:
    """SIGKILL hits it while it catches up and while it is live. Then another follower continues."""
    dice = random.Random(1)
    with (
        followed(emulator) as here,
        KillableFollower(emulator.endpoint, here.topic, tmp_path, store, EVERY) as killable,
    ):
        here.append(TOTAL // 2)
        for life in range(KILLS):
            process = killable.start()
            killable.wait_for(len(killable.handled) + dice.randrange(1, TOTAL // KILLS // 2))
            killable.kill(process)
            if life == KILLS // 2:
                here.append(TOTAL // 2)
        process = killable.start()
        eventually(lambda: TOTAL in killable.handled[-1:])
        killable.kill(process)
    handled = killable.handled
    assert set(handled) == set(range(1, TOTAL + 1))
    back = [before - after + 1 for before, after in pairwise(handled) if after != before + 1]
    assert 0 < len(back) <= KILLS
    assert all(0 < again <= EVERY for again in back)
