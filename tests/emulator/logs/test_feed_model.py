"""Model test of a feed with many random operations."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pullstream_protocol.errors import FailedPrecondition
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.emulator.logs.driver import TOPIC, Driver, seqs


@dataclass
class Kept:
    """One record of the model: the time of its append, and whether it was deleted on purpose."""

    at: float
    deleted: bool = False


class FeedLife(RuleBasedStateMachine):
    """A feed with its readers, and a plain list of the appended records as the model.

    A reported gap may be too large in one way only: it may include records that were deleted on
    purpose. Everything else must be exact.
    """

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.cap, self.ttl, self.rejects = 0, 0, False
        self.driver.put()
        # The records by number, from 1.
        self.appended: list[Kept] = []
        self.involuntary = 0
        self.earliest = self.head = 0
        self.reader = 0
        self.lost: set[int] = set()
        self.read: list[int] = []

    # ---- actions -------------------------------------------------------------------------------

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        live = len(self.live())
        try:
            given_numbers = self.driver.append(*["x"] * count, tag=str(len(self.appended) % 3))
        except FailedPrecondition:
            assert self.rejects
            assert live + count > self.cap > 0
            return
        assert not (self.rejects and self.cap and live + count > self.cap)
        first = len(self.appended) + 1
        assert given_numbers == list(range(first, first + count))
        self.appended += [Kept(self.driver.clock.now()) for _ in range(count)]
        self.enforce()

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.999, 5.0, 5.001, 20]))
    def advance(self, seconds: float) -> None:
        self.driver.advance(seconds)
        self.enforce()

    @rule(
        cap=st.sampled_from([0, 0, 1, 5, 10]),
        ttl=st.sampled_from([0, 0, 1, 5]),
        rejects=st.booleans(),
    )
    def configure(self, cap: int, ttl: int, rejects: bool) -> None:
        self.cap, self.ttl, self.rejects = cap, ttl, rejects
        discard = feeds.REJECT if rejects else feeds.OLD
        self.driver.put(cap_records=cap, ttl_ms=ttl * 1000, discard=discard)
        self.enforce()

    @rule(back=st.integers(0, 8))
    def delete_before(self, back: int) -> None:
        before = max(1, len(self.appended) - back)
        expected = [seq for seq in self.live() if seq < before]
        assert self.driver.delete(before=before) == len(expected)
        for seq in expected:
            self.appended[seq - 1].deleted = True

    @precondition(lambda self: self.live())
    @rule(tag=st.sampled_from("012"))
    def delete_tagged(self, tag: str) -> None:
        tagged = [
            int(message.message_id)
            for message in self.driver.read(0, max_messages=1000).messages
            if message.attributes["tag"] == tag
        ]
        assert self.driver.delete(filter_text=f'attributes.tag = "{tag}"') == len(tagged)
        for seq in tagged:
            self.appended[seq - 1].deleted = True

    @rule(limit=st.integers(1, 5))
    def read_on(self, limit: int) -> None:
        """Let the reader take a step, and compare the result with the model."""
        live = self.live()
        response = self.driver.read(self.reader, max_messages=limit)
        earliest = live[0] if live else len(self.appended) + 1
        assert response.HasField("gap") == (self.reader < self.involuntary)
        if response.HasField("gap"):
            gap = response.gap
            assert (gap.from_seq, gap.to_seq) == (self.reader + 1, earliest - 1)
            assert gap.earliest_seq == earliest
            self.lost.update(range(gap.from_seq, gap.to_seq + 1))
        got = seqs(response.messages)
        assert got == [seq for seq in live if seq > self.reader][:limit]
        self.read += got
        assert response.next_seq >= self.reader
        assert response.caught_up == (response.next_seq == len(self.appended))
        self.reader = response.next_seq

    # ---- the model -----------------------------------------------------------------------------

    def enforce(self) -> None:
        """Apply the limits for size and age to the list."""
        now = self.driver.clock.now()
        if self.ttl:
            for seq in self.live():
                # In whole milliseconds, like publish times.
                age = int(now * 1000) - int(self.appended[seq - 1].at * 1000)
                if age > self.ttl * 1000:
                    self.involuntary = seq
        if self.cap and not self.rejects:
            live = self.live()
            if len(live) > self.cap:
                self.involuntary = live[-self.cap - 1]

    def live(self) -> list[int]:
        return [
            seq
            for seq, kept in enumerate(self.appended, start=1)
            if seq > self.involuntary and not kept.deleted
        ]

    # ---- invariants ----------------------------------------------------------------------------

    @invariant()
    def its_numbers_are_those_of_the_list(self) -> None:
        state, live = self.driver.state(), self.live()
        assert (state.head_seq, state.count) == (len(self.appended), len(live))
        assert state.earliest_seq == (live[0] if live else len(self.appended) + 1)
        assert self.driver.engine.kept_bytes == state.bytes
        if self.cap and not self.rejects:
            assert state.count <= self.cap

    @invariant()
    def its_ends_never_go_back(self) -> None:
        state = self.driver.state()
        assert (state.earliest_seq, state.head_seq) >= (self.earliest, self.head)
        self.earliest, self.head = state.earliest_seq, state.head_seq

    @invariant()
    def the_reader_has_everything_that_it_was_not_told_of(self) -> None:
        assert self.read == sorted(set(self.read))
        for seq in range(1, self.reader + 1):
            assert seq in self.lost or seq in self.read or self.appended[seq - 1].deleted

    def teardown(self) -> None:
        self.driver.delete_topic(TOPIC)
        assert self.driver.engine.kept_bytes == 0


TestFeedLife = FeedLife.TestCase
TestFeedLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(
    cap=st.integers(1, 20), batches=st.lists(st.integers(1, 15), min_size=1), after=st.integers(0)
)
def test_a_feed_reader_behind_the_record_cap_resumes_at_the_oldest_kept_record(
    cap: int, batches: list[int], after: int
) -> None:
    driver = Driver()
    driver.put(cap_records=cap)
    for size in batches:
        driver.append(*["x"] * size)
    head = sum(batches)
    state = driver.state()
    assert (state.count, state.earliest_seq) == (min(cap, head), max(1, head - cap + 1))
    response = driver.read(after % (head + 1), max_messages=1000)
    assert seqs(response.messages) == list(
        range(max(after % (head + 1) + 1, head - cap + 1, 1), head + 1)
    )


@given(
    nodes=st.lists(st.sampled_from("abc"), max_size=40),
    limit=st.integers(1, 7),
)
def test_a_feed_reader_that_excludes_a_node_gets_all_records_of_other_nodes(
    nodes: list[str], limit: int
) -> None:
    driver = Driver()
    driver.put()
    for number, node in enumerate(nodes):
        driver.append(str(number), node=node)
    position, got = 0, list[str]()
    while True:
        response = driver.read(position, exclude_node="a", max_messages=limit)
        assert not response.HasField("gap")
        got += [message.data.decode() for message in response.messages]
        position = response.next_seq
        if response.caught_up:
            break
    assert got == [str(n) for n, node in enumerate(nodes) if node != "a"]
    assert position == len(nodes)


@given(keys=st.lists(st.sampled_from(["", "k1", "k2", "k3"]), max_size=30))
def test_a_feed_append_with_a_repeated_idempotency_key_appends_no_records(keys: list[str]) -> None:
    driver = Driver()
    driver.put()
    known: dict[str, list[int]] = {}
    head = 0
    for key in keys:
        numbers = driver.append("a", "b", key=key)
        if key in known:
            assert numbers == known[key]
        else:
            assert numbers == [head + 1, head + 2]
            head += 2
            if key:
                known[key] = numbers
    assert driver.state().head_seq == head
