"""Memory of acknowledged ack IDs: its content, its duration, and its size."""

from __future__ import annotations

import random

import pytest

from pullstream_emulator.engine.delivery import acked_ids
from pullstream_emulator.engine.delivery.acked_ids import AckedIds
from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.observer import Observer, Resource

NAME = "projects/p/subscriptions/s"


class Notes(Observer):
    """Records the events for storage."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def noted(self, kind: Resource, name: str, value: bytes) -> None:
        assert kind is Resource.ACKED
        assert acked_ids.subscription_of(name) == NAME
        if value:
            self.kept[name] = value
        else:
            del self.kept[name]


def at(seconds: float) -> Now:
    return Now(wall=1_000_000 + seconds, monotonic=seconds)


def ids(*numbers: int) -> list[str]:
    return [f"{number:x}-mark" for number in numbers]


@pytest.mark.parametrize("step", [1, 2, 1023, 1024, 5000])
def test_the_memory_of_acknowledged_ack_ids_contains_exactly_the_added_ack_ids(step: int) -> None:
    """The test covers runs, gaps, and the limits of chunks."""
    known = AckedIds(NAME, Observer())
    numbers = range(1000, 1000 + 500 * step, step)
    known.add_acked(ids(*random.sample(numbers, len(numbers))), at(0))
    around = (
        range(990, numbers[-1] + 10) if step < 10 else [n + d for n in numbers for d in (-1, 0, 1)]
    )
    for number in around:
        assert (ids(number)[0] in known) == (number in numbers)
    assert "no id" not in known


def test_acknowledged_ack_ids_of_one_generation_are_forgotten_at_the_same_time() -> None:
    """Nothing is forgotten within eleven minutes, and everything is after 13."""
    known = AckedIds(NAME, Observer())
    assert known.next_due() is None
    for second in range(0, 240, 10):
        known.add_acked(ids(second), at(second))
    known.drop_expired(791.9)
    assert ids(0)[0] in known
    assert known.next_due() == 792
    known.drop_expired(792)
    assert [second for second in range(0, 240, 10) if ids(second)[0] in known] == list(
        range(140, 240, 10)
    )
    known.drop_expired(932)
    assert known.next_due() is None


def test_acknowledged_ack_ids_restored_from_storage_keep_their_age() -> None:
    """The IDs keep their age. IDs that are too old by then are reported as forgotten."""
    notes = Notes()
    known = AckedIds(NAME, notes)
    known.add_acked(ids(1, 2, 5000), at(0))
    known.add_acked(ids(3), at(200))
    again = AckedIds(NAME, notes)
    # Another process, whose monotonic clock has another origin.
    again.restore(notes.kept.items(), Now(wall=1_000_000 + 300, monotonic=7))
    assert [number for number in range(6000) if ids(number)[0] in again] == [1, 2, 3, 5000]
    again.add_acked(ids(4), Now(wall=1_000_000 + 792, monotonic=499))
    assert [number for number in range(6000) if ids(number)[0] in again] == [3, 4]
    assert len(notes.kept) == 2
    again.clear()
    assert notes.kept == {}


def test_the_memory_of_acknowledged_ack_ids_forgets_the_oldest_at_its_size_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest IDs are forgotten first, before their time."""
    monkeypatch.setattr(acked_ids, "MAX_CHUNKS", 8)
    notes = Notes()
    known = AckedIds(NAME, notes)
    for number in range(100):
        known.add_acked(ids(number * 1024), at(0))
        assert len(notes.kept) <= 8
    assert [number for number in range(100) if ids(number * 1024)[0] in known] == list(
        range(92, 100)
    )
