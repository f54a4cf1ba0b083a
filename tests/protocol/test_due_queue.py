"""The due queue: items by due time, in order, with removal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_protocol.due_queue import DueQueue


def test_a_due_queue_returns_due_items_in_the_order_of_their_times() -> None:
    """Items with equal times come in the order in which they were scheduled."""
    queue: DueQueue[str] = DueQueue()
    for item, due in (("b", 2.0), ("c", 2.0), ("a", 1.0), ("later", 3.0)):
        queue.schedule(item, due)
    assert queue.next_due() == 1.0
    assert list(queue.pop_due(2.0)) == ["a", "b", "c"]
    assert (queue.items(), queue.next_due()) == (["later"], 3.0)


@pytest.mark.parametrize("second", [1.0, 9.0])
def test_rescheduling_an_item_of_a_due_queue_replaces_the_due_time_of_the_item(
    second: float,
) -> None:
    """A new time replaces the old one, whether it is earlier or later."""
    queue: DueQueue[str] = DueQueue()
    queue.schedule("a", 5.0)
    queue.schedule("a", second)
    assert queue.due_of("a") == second
    assert list(queue.pop_due(second - 0.5)) == []
    assert list(queue.pop_due(second)) == ["a"]
    assert list(queue.pop_due(100.0)) == []


def test_a_due_queue_does_not_return_a_removed_item_at_the_due_time_of_the_item() -> None:
    """To forget an item twice, or to forget an item that is not in the queue, has no effect."""
    queue: DueQueue[str] = DueQueue()
    queue.schedule("a", 1.0)
    for item in ("a", "a", "unknown"):
        queue.forget(item)
    assert (list(queue.pop_due(5.0)), queue.due_of("a"), queue.next_due()) == ([], None, None)


def test_a_cleared_due_queue_has_no_items_and_no_due_time() -> None:
    """The queue accepts new items."""
    queue: DueQueue[str] = DueQueue()
    queue.schedule("a", 1.0)
    queue.clear()
    assert (queue.next_due(), queue.items(), list(queue.pop_due(5.0))) == (None, [], [])
    queue.schedule("a", 2.0)
    assert list(queue.pop_due(5.0)) == ["a"]


def test_replaced_and_removed_entries_of_a_due_queue_do_not_accumulate_in_memory() -> None:
    """The heap stays small, even if the forgotten times are distant."""
    queue: DueQueue[int] = DueQueue()
    for item in range(10_000):
        queue.schedule(item, 1e9)
        queue.forget(item)
    assert len(queue) < 100


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("schedule"), st.integers(0, 5), st.integers(0, 20)),
            st.tuples(st.just("forget"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("pop"), st.just(0), st.integers(0, 20)),
        )
    )
)
def test_a_due_queue_behaves_as_a_dict_of_due_times(steps: list[tuple[str, int, int]]) -> None:
    """After any steps, the same items are due, and `next_due` is never too late."""
    queue: DueQueue[int] = DueQueue()
    model: dict[int, int] = {}
    for action, item, time in steps:
        if action == "schedule":
            queue.schedule(item, time)
            model[item] = time
        elif action == "forget":
            queue.forget(item)
            model.pop(item, None)
        else:
            due = sorted(i for i, when in model.items() if when <= time)
            popped = list(queue.pop_due(time))
            assert sorted(popped) == due
            times = [model.pop(i) for i in popped]
            assert times == sorted(times)
        assert sorted(queue.items()) == sorted(model)
        announced = queue.next_due()
        assert not model or (announced is not None and announced <= min(model.values()))
