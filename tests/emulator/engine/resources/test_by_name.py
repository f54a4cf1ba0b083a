"""Resources by name: their order, and their number in a project."""

from __future__ import annotations

import random
from bisect import bisect_right

from pullstream_emulator.engine.resources.by_name import ByName

NAMES = [f"projects/{p}/topics/t{n}" for p in ("p", "p-1", "q") for n in range(6)]


def test_names_after_a_name_are_in_the_order_of_names_whatever_was_added_and_removed() -> None:
    source = random.Random(7)
    known: ByName[int] = ByName()
    model: dict[str, int] = {}
    for step in range(2_000):
        name = source.choice(NAMES)
        if source.random() < 0.5:
            known[name] = model[name] = step
        else:
            assert known.pop(name, None) == model.pop(name, None)
        after = source.choice(["", *NAMES])
        ordered = sorted(model)
        assert list(known.names_after(after)) == ordered[bisect_right(ordered, after) :]
        of_p = [each for each in ordered if each.startswith("projects/p/") and each > after]
        assert list(known.names_after(after, "p")) == of_p
        assert known.number_in("q") == sum(each.startswith("projects/q/") for each in model)
        assert dict(known.items()) == model


def test_a_page_of_names_compares_as_many_as_it_has() -> None:
    """Pages of small size once sorted the names of all projects."""
    compared = 0

    class Counted(str):
        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            nonlocal compared
            compared += 1
            return str.__lt__(self, other)

    known: ByName[int] = ByName()
    for number in range(4_096):
        known[Counted(f"projects/p/topics/{number:05}")] = number
    compared = 0
    page = known.names_after(Counted("projects/p/topics/02000"), "p")
    assert [next(page) for _ in range(3)] == [
        f"projects/p/topics/{n:05}" for n in (2001, 2002, 2003)
    ]
    assert known.number_in("p") == 4_096
    assert 0 < compared < 20
