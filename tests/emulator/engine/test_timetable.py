"""The timetable of an engine: timed work by its due time."""

from __future__ import annotations

from pullstream_emulator.engine.now import Now
from pullstream_emulator.engine.timetable import Timetable


class Item:
    """Timed work whose due time a test sets."""

    def __init__(self, due: float | None) -> None:
        self.due = due

    def next_due(self, _now: Now) -> float | None:
        return self.due


def test_an_engine_timetable_reports_a_new_due_time_only_if_it_is_the_earliest_of_all() -> None:
    """A later time of a watched item is ignored until the item is popped."""
    told: list[float] = []
    timetable = Timetable(told.append)
    item, other, idle = Item(10.0), Item(20.0), Item(None)
    now = Now(0.0, 0.0)
    for watched in (item, other, idle):
        timetable.watch(watched, now)
    timetable.announce(item, 15.0)
    timetable.announce(other, 5.0)
    assert (told, timetable.next_due()) == ([10.0, 5.0], 5.0)
    assert list(timetable.pop_due(10.0)) == [other, item]
    timetable.announce(item, 15.0)
    assert (told, timetable.due_of(item)) == ([10.0, 5.0, 15.0], 15.0)
