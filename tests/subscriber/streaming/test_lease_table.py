"""The rules of leases: the time and length of extensions, and the end of a lease."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream.columns.portions import Portion
from pullstream.flow_control import FlowControl
from pullstream.message import Disposition, Message
from pullstream.streaming.lease_table import EXTEND_AT, LeaseTable, Released
from tests.subscriber.streaming.fakes import (
    ids,
    message,
    portions,
    response,
)

NO_LIMIT = FlowControl()
# The error of floats when seconds are added in another order.
TINY = 1e-9


def table_with(*ack_ids: str, limits: FlowControl = NO_LIMIT) -> LeaseTable:
    """Return a table with the messages of one response, received at 0."""
    table = LeaseTable(limits)
    add(table, *ack_ids)
    return table


def add(table: LeaseTable, *ack_ids: str, at: float = 0.0, bytes_each: int = 0) -> list[Message]:
    """Add one more response."""
    batch, messages = response(*ack_ids, at=at, bytes_each=bytes_each)
    table.add_leases(batch, messages, at)
    return messages


def test_a_lease_is_extended_when_four_fifths_of_its_time_have_passed() -> None:
    """The first lease has the server's 60 s. Each extension counts from the time of its request."""
    table = table_with("a")
    assert table.next_due() == 48.0
    assert table.due(47.9).extend == []
    assert table.due(48.0).extend == ["a"]
    assert table.next_due() == 48.0 + 0.8 * 10
    assert table.due(56.0).extend == ["a"]


def test_the_lease_table_finds_all_leased_messages_of_a_refused_ack_id() -> None:
    """Later messages are found, too, and so are two deliveries with the same ack id."""
    table = LeaseTable(NO_LIMIT)
    first = add(table, "a", "b", "c", "d")
    assert table.leased_under(["a", "unknown"]) == first[:1]
    second = add(table, "a", "e")
    assert table.leased_under(["a", "e"]) == [first[0], *second]
    table.remove_leases([first[0], second[1]])
    assert table.leased_under(["a", "e"]) == second[:1]
    # More messages than there were at the first refusal.
    many = add(table, *(f"late-{number}" for number in range(20)))
    table.remove_leases(many[:10])
    assert table.leased_under(["late-9", "late-10", "b"]) == [many[10], first[1]]


def test_a_lease_extension_prolongs_a_running_lease_and_does_not_renew_an_ended_one() -> None:
    """The process may be stopped when the extension is due."""
    table = LeaseTable(NO_LIMIT)
    extended, late = add(table, "extended"), add(table, "late", at=5.0)
    assert (extended[0].batch.lease_ends, late[0].batch.lease_ends) == (60.0, 65.0)
    assert table.due(48.0).extend == ["extended"]
    assert extended[0].batch.lease_ends == 58.0
    # A running callback may still be in time for a server that has not redelivered the message.
    assert sorted(table.due(70.0).extend) == ["extended", "late"]
    assert (extended[0].batch.lease_ends, late[0].batch.lease_ends) == (58.0, 65.0)


def test_the_lease_table_extends_each_lease_only_at_its_own_due_time() -> None:
    """Each response has its own time, so no lease is extended more often than necessary."""
    table = table_with("a")
    add(table, "b", at=5.0)
    assert table.due(48.0).extend == ["a"]
    assert table.due(53.0).extend == ["b"]
    assert table.due(56.0).extend == ["a"]


def test_the_length_of_lease_extensions_is_the_99th_percentile_of_handling_times() -> None:
    """The length is the 99th percentile of acknowledged messages only."""
    table = table_with("a")
    table.remove_handled([message("other", at=0.0)], 25.0)
    work = table.due(48.0)
    assert (work.extend, work.seconds) == (["a"], 25)
    assert table.next_due() == 48.0 + 0.8 * 25


@pytest.mark.parametrize(
    ("low", "high", "took", "extension"),
    [
        (0, 0, 5.0, 10),
        (0, 0, 1000.0, 600),
        (30, 0, 5.0, 30),
        (0, 20, 500.0, 20),
        (30, 40, 35.0, 35),
        (30, 40, 500.0, 40),
        (30, 40, 5.0, 30),
    ],
)
def test_the_length_of_lease_extensions_stays_within_the_users_minimum_and_maximum(
    low: float, high: float, took: float, extension: int
) -> None:
    """0 means the server's limit, 10 or 600 seconds."""
    limits = FlowControl(
        min_duration_per_lease_extension=low, max_duration_per_lease_extension=high
    )
    table = LeaseTable(limits)
    table.remove_handled([message("a")], took)
    assert table.extension == extension


@pytest.mark.parametrize(
    ("low", "high", "deadline"), [(0, 0, 60), (0, 20, 20), (0, 300, 60), (90, 0, 90), (30, 45, 45)]
)
def test_the_first_lease_of_a_delivery_stays_within_the_users_minimum_and_maximum(
    low: float, high: float, deadline: int
) -> None:
    """The lease has 60 seconds unless the user's limits exclude that."""
    limits = FlowControl(
        min_duration_per_lease_extension=low, max_duration_per_lease_extension=high
    )
    table = table_with("a", limits=limits)
    assert table.stream_deadline == deadline
    assert table.next_due() == deadline * EXTEND_AT


def test_the_lease_of_a_message_removed_from_the_lease_table_is_not_extended() -> None:
    """Removing a message returns its messages and bytes once."""
    table = LeaseTable(NO_LIMIT)
    first, second, third = add(table, "a", "b", "c", bytes_each=7)
    assert table.remove_leases([first, third]) == Released(2, 14)
    assert table.remove_leases([first]) == Released(0, 0)
    assert table.due(48.0).extend == ["b"]
    assert len(table) == 1
    assert table.remove_leases([second]) == Released(1, 7)
    assert len(table) == 0
    assert table.due(1000.0).extend == []
    assert table.next_due() is None


def test_the_lease_table_extends_only_the_unsettled_messages_of_a_response() -> None:
    """The response is extended while one message is open, without the settled ones."""
    table = LeaseTable(NO_LIMIT)
    first, second, third = add(table, "a", "b", "c")
    table.remove_leases([second])
    assert table.due(48.0).extend == ["a", "c"]
    table.remove_leases([first])
    assert table.due(56.0).extend == ["c"]
    table.remove_leases([third])
    assert table.next_due() is None or table.due(64.0).extend == []
    assert len(table) == 0


def test_the_lease_table_gives_up_a_message_after_max_lease_duration() -> None:
    """The time counts from the receipt, whatever the extensions. Then the message is gone."""
    table = LeaseTable(FlowControl(max_lease_duration=100))
    finished, given_up = add(table, "finished", "a", bytes_each=7)
    table.remove_leases([finished])
    times = []
    while (due := table.next_due()) is not None:
        work = table.due(due)
        times.append((due, work.extend, ids(work.given_up)))
        assert work.released == Released(len(work.given_up), 7 * len(work.given_up))
    *extensions, last = times
    assert last == (100.0, [], ["a"])
    assert [due for due, extend, _ in extensions if extend == ["a"]] == [
        pytest.approx(48.0 + 8 * count) for count in range(7)
    ]
    assert len(table) == 0
    assert table.remove_leases([given_up]) == Released(0, 0)


def test_a_lease_longer_than_max_lease_duration_is_given_up_without_an_extension() -> None:
    """The message is given up without an extension."""
    table = table_with("a", limits=FlowControl(max_lease_duration=5))
    assert table.next_due() == 5.0
    work = table.due(5.0)
    assert (work.extend, ids(work.given_up)) == ([], ["a"])


def test_the_lease_table_lists_all_leased_messages() -> None:
    """The shutdown returns them."""
    table = LeaseTable(NO_LIMIT)
    first, _ = add(table, "a", "b")
    add(table, "c")
    table.remove_leases([first])
    assert ids(table.leased_messages()) == ["b", "c"]


def test_the_lease_table_reports_the_latencies_of_acknowledged_messages() -> None:
    """Each time counts from its own receipt, and the latency is 0 without messages."""
    table = LeaseTable(NO_LIMIT)
    assert table.latency().p99 == 0.0
    table.remove_handled([message("a", at=9.0), message("b", at=9.0), message("c", at=5.0)], 10.0)
    latency = table.latency()
    assert latency.p50 == pytest.approx(1.0, rel=0.06)
    assert latency.p90 == pytest.approx(5.0, rel=0.06)


@given(
    arrivals=st.lists(st.floats(0.0, 200.0), min_size=1, max_size=10).map(sorted),
    limit=st.floats(1.0, 400.0),
    took=st.floats(0.0, 100.0),
    delay=st.floats(0.0, 1.9),
)
def test_no_lease_ends_before_the_lease_table_extends_or_gives_it_up(
    arrivals: list[float], limit: float, took: float, delay: float
) -> None:
    """Messages arrive at any times, and the leaser looks up to two seconds late."""
    table = LeaseTable(FlowControl(max_lease_duration=limit))
    table.remove_handled([message("before")], took)
    ends: dict[str, float] = {}
    now = 0.0

    def look_until(moment: float) -> None:
        nonlocal now
        while (due := table.next_due()) is not None and due + delay < moment:
            now = max(now, due + delay)
            work = table.due(now)
            for ack_id in work.extend:
                assert now <= ends[ack_id]
                ends[ack_id] = now + work.seconds
            for given_up in work.given_up:
                assert 0 <= now - (given_up.batch.received_at + limit) + TINY <= delay + 2 * TINY
                assert now <= ends.pop(given_up.ack_id) + delay + TINY

    for number, arrival in enumerate(arrivals):
        look_until(arrival)
        now = max(now, arrival)
        for one in add(table, f"{number}/first", f"{number}/second", at=now):
            ends[one.ack_id] = now + table.stream_deadline
    look_until(now + limit + 1000.0)
    assert ends == {}


def portions_of(
    table: LeaseTable, *ack_ids: str, longest: int, at: float = 0.0, bytes_each: int = 0
) -> list[Portion]:
    """Add one more response as portions."""
    added = portions(*ack_ids, longest=longest, at=at, bytes_each=bytes_each)
    table.add_leases(added[0].batch, added, at)
    return added


class TwoTables:
    """The same responses in two tables, as portions and as messages, which must agree."""

    def __init__(self) -> None:
        limits = FlowControl(max_lease_duration=100)
        self.tables = LeaseTable(limits), LeaseTable(limits)
        self.now = 0.0
        self.portions: list[Portion] = []
        self.messages: list[list[Message]] = []

    def add(self, size: int, longest: int) -> None:
        names = [f"{len(self.portions)}-{number}" for number in range(size)]
        self.portions += portions_of(
            self.tables[0], *names, longest=longest, at=self.now, bytes_each=size
        )
        messages = add(self.tables[1], *names, at=self.now, bytes_each=size)
        self.messages += [messages[start : start + longest] for start in range(0, size, longest)]

    def ack(self, at: int) -> None:
        """Acknowledge a portion, or its messages once it is divided."""
        portion, messages = self.portions[at], self.messages[at]
        if portion.settle(Disposition.ACK):
            released = self.tables[0].remove_portions([portion], self.now)
        elif portion.divided is not None:
            released = self.tables[0].remove_handled(portion.divided, self.now)
        else:
            return
        assert released == self.tables[1].remove_handled(messages, self.now)

    def ack_late(self, at: int) -> None:
        """Acknowledge a portion that is divided before the table hears of it."""
        portion, messages = self.portions[at], self.messages[at]
        if portion.settle(Disposition.ACK):
            assert all(each.settled is Disposition.ACK for each in portion.messages())
            released = self.tables[0].remove_portions([portion], self.now)
            assert released == self.tables[1].remove_handled(messages, self.now)

    def nack_one(self, at: int, number: int) -> None:
        one = self.portions[at].messages()[number % len(self.portions[at])]
        other = self.messages[at][number % len(self.portions[at])]
        released = self.tables[0].remove_leases([one])
        assert released == self.tables[1].remove_leases([other])

    def advance(self, seconds: float) -> None:
        self.now += seconds
        work, expected = (table.due(self.now) for table in self.tables)
        assert (work.seconds, work.extend) == (expected.seconds, expected.extend)
        assert ids(work.given_up) == ids(expected.given_up)
        assert work.released == expected.released

    def check(self) -> None:
        portions, messages = self.tables
        assert len(portions) == len(messages)
        assert portions.next_due() == messages.next_due()
        leased = [each for some in self.messages for each in some if each.leased]
        assert sorted(ids(leased)) == sorted(ids(messages.leased_messages()))


STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 5), st.integers(1, 3)),
    st.tuples(st.sampled_from(["ack", "ack_late"]), st.integers(0, 9)),
    st.tuples(st.just("nack_one"), st.integers(0, 9), st.integers(0, 4)),
    st.tuples(st.just("advance"), st.sampled_from([1.0, 10.0, 48.0, 60.0])),
)


@given(st.lists(STEPS, max_size=30))
def test_portions_are_leased_released_extended_and_given_up_like_their_messages(
    steps: list[tuple[str, int | float]],
) -> None:
    """In any order of acknowledgements, single nacks, and due times."""
    both = TwoTables()
    for name, *arguments in steps:
        if name not in ("add", "advance"):
            if not both.portions:
                continue
            arguments[0] = int(arguments[0]) % len(both.portions)
        getattr(both, name)(*arguments)
        both.check()
    assert ids(both.tables[0].leased_messages()) == ids(both.tables[1].leased_messages())
