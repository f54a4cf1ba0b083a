"""The table of deadlines behaves like a dictionary that is searched completely."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pullstream_protocol.deadlines import DeadlineTable

KEYS = st.sampled_from("abcdefgh")
# Few values, so that items share them, and whole numbers, so that sums are exact.
DURATIONS = st.sampled_from([0.0, 1.0, 5.0, 10.0])


class TableAgainstDictionary(RuleBasedStateMachine):
    """Random calls in any order, with time passing in between."""

    def __init__(self) -> None:
        super().__init__()
        self.table: DeadlineTable[str, int] = DeadlineTable()
        self.model: dict[str, tuple[float, int]] = {}
        self.now = 0.0
        self.count = 0

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 7.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def the_key_that_was_added_first_is_first(self) -> None:
        # A dict has the order in which its keys were added.
        oldest = next(iter(self.model.values()), None)
        assert self.table.first() == (None if oldest is None else oldest[1])

    @rule(key=KEYS, duration=DURATIONS)
    def set(self, key: str, duration: float) -> None:
        self.count += 1
        self.table.set(key, self.count, duration, self.now)
        self.model[key] = (self.now + duration, self.count)

    @rule(keys=st.lists(KEYS, max_size=4), duration=DURATIONS)
    def set_all(self, keys: list[str], duration: float) -> None:
        items = [(key, self.count + number) for number, key in enumerate(keys, 1)]
        self.count += len(keys)
        self.table.set_all(items, duration, self.now)
        self.model.update((key, (self.now + duration, value)) for key, value in items)

    @rule(key=KEYS)
    def pop(self, key: str) -> None:
        expected = self.model.pop(key, None)
        assert self.table.pop(key) == (None if expected is None else expected[1])

    @rule()
    def pop_due(self) -> None:
        due = {key: when for key, (when, _) in self.model.items() if when <= self.now}
        popped = self.table.pop_due(self.now)
        assert dict(popped) == {key: self.model.pop(key)[1] for key in due}
        assert [due[key] for key, _ in popped] == sorted(due.values())
        # A caller that waits for the next deadline does not spin.
        following = self.table.next_due()
        assert following is None or following > self.now

    @invariant()
    def both_hold_the_same(self) -> None:
        assert len(self.table) == len(self.model)
        assert sorted(self.table.values()) == sorted(value for _, value in self.model.values())
        earliest = min((when for when, _ in self.model.values()), default=None)
        due = self.table.next_due()
        assert (due is None) == (earliest is None)
        assert due is None or earliest is None or due <= earliest
        for key in "abcdefgh":
            assert (key in self.table) == (key in self.model)
            assert self.table.get(key) == self.model.get(key, (0.0, None))[1]


TestTableAgainstDictionary = TableAgainstDictionary.TestCase


def test_setting_an_item_of_a_deadline_table_again_replaces_the_deadline_of_the_item() -> None:
    """Extending a lease must not leave its old deadline behind."""
    table: DeadlineTable[str, str] = DeadlineTable()
    table.set("lease", "message", 10.0, 0.0)
    table.set("lease", "message", 10.0, 8.0)
    assert table.pop_due(10.0) == []
    assert table.next_due() == 18.0
    assert table.pop_due(17.9) == []
    assert table.pop_due(18.0) == [("lease", "message")]
    assert table.next_due() is None


def test_items_of_a_deadline_table_with_equal_deadlines_are_due_in_insertion_order() -> None:
    """Leases of one response end together, and are returned in their order."""
    table: DeadlineTable[int, None] = DeadlineTable()
    table.set_all(((number, None) for number in range(100)), 10.0, 0.0)
    assert [number for number, _ in table.pop_due(10.0)] == list(range(100))
