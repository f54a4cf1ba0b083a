"""The lowest number of many owners."""

from __future__ import annotations

import random

from pullstream_emulator.engine.lowest import LowestNumber


def test_the_lowest_number_is_right_after_any_changes() -> None:
    source = random.Random(3)
    lowest, model = LowestNumber(), dict[str, float]()
    for _ in range(5_000):
        owner, number = f"{source.randrange(20)}", source.choice([None, *range(10)])
        lowest.put(owner, number)
        model.pop(owner, None)
        if number is not None:
            model[owner] = number
        assert lowest.lowest() == min(model.values(), default=None)
        assert bool(lowest) == bool(model)
        assert (owner in lowest) == (owner in model)


def test_owners_that_come_and_go_beside_an_old_one_take_no_memory() -> None:
    lowest = LowestNumber()
    lowest.put("old", 1)
    for number in range(10_000):
        lowest.put(f"{number}", 2)
        lowest.put(f"{number}", None)
    assert lowest.lowest() == 1
    assert len(lowest._heap) < 100
