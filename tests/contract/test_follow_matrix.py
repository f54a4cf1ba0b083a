"""Followers of every kind of log, from every start, with every later event.

The scenarios are those with which EventStore tests its stream subscriptions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import pytest

from pullstream.feeds import GapReason
from pullstream.follow import Checkpoint, CloseReason, Gap, Record
from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import NotFound
from tests.contract.following import Followed, followed, until_live
from tests.subscriber.streaming.fakes import eventually

Kind = Literal[
    "empty", "existing", "partly deleted", "all deleted", "capped", "expired", "recreated"
]
Start = Literal["first", "before last", "last", "beyond", "tail"]
Happening = Literal["more comes", "the topic is deleted", "it falls behind"]

KINDS: tuple[Kind, ...] = (
    "empty", "existing", "partly deleted", "all deleted", "capped", "expired", "recreated",
)  # fmt: skip
STARTS: tuple[Start, ...] = ("first", "before last", "last", "beyond", "tail")
HAPPENINGS: tuple[Happening, ...] = ("more comes", "the topic is deleted", "it falls behind")

_numbers = itertools.count()


@dataclass(frozen=True)
class Kept:
    """A log: its newest number, its last lost number, and its readable records.

    Attributes:
        life: The life of the topic whose position an earlier reader knows. None: the present life.
    """

    last: int
    lost: int
    readable: range
    reason: GapReason = GapReason.UNKNOWN
    life: int | None = None


@pytest.fixture(scope="module")
def broker() -> Iterator[Emulator]:
    with Emulator(clock=ManualClock()) as emulator:
        yield emulator


@pytest.fixture
def here(broker: Emulator) -> Iterator[Followed]:
    topic = f"projects/test-project/topics/case-{next(_numbers)}"
    with followed(broker, topic) as here:
        yield here


def make(here: Followed, kind: Kind) -> Kept:
    """Create the topic, with eight records if the log has any."""
    client, topic = here.client, here.topic
    config: dict[str, object] = {}
    if kind == "capped":
        config = {"cap_records": 3}
    elif kind == "expired":
        config = {"ttl": timedelta(seconds=5)}
    epoch = client.feeds.put(topic, config).epoch
    if kind == "empty":
        return Kept(0, 0, range(1, 1))
    here.append(8)
    if kind == "partly deleted":
        client.feeds.delete_messages(topic, before_seq=6)
        return Kept(8, 0, range(6, 9))
    if kind == "all deleted":
        client.feeds.delete_messages(topic, before_seq=9)
        return Kept(8, 0, range(9, 9))
    if kind == "capped":
        return Kept(8, 5, range(6, 9), GapReason.CAP)
    if kind == "expired":
        here.emulator.clock.advance(6)
        return Kept(8, 8, range(9, 9), GapReason.TTL)
    if kind == "recreated":
        here.delete()
        client.feeds.put(topic)
        here.append(2)
        return Kept(2, 0, range(1, 3), GapReason.RECREATED, life=epoch)
    return Kept(8, 0, range(1, 9))


def number(start: Start, kept: Kept) -> int:
    last = 8 if kept.life else kept.last
    starts = {"first": 0, "before last": max(last - 1, 0), "last": last, "beyond": last + 2}
    return kept.last if start == "tail" else starts[start]


@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_follower_receives_exactly_the_records_and_gaps_after_any_start_position_c1_13(
    here: Followed, kind: Kind, start: Start, happening: Happening
) -> None:
    """The follower receives the exact numbers and gaps, and one CaughtUp until it falls behind."""
    kept = make(here, kind)
    after = number(start, kept)
    follower = here.live("tail" if start == "tail" else Checkpoint(after, kept.life or 0))
    was_recreated = kept.life is not None and start != "tail"
    expected = [seq for seq in kept.readable if seq > after or was_recreated]
    assert here.diary.seqs == expected
    check_gaps(here, kept, after, was_recreated)
    assert here.diary.turns == ["CaughtUp"]

    if happening == "the topic is deleted":
        here.delete()
        assert isinstance(follower.exception(20), NotFound)
        assert here.diary.closed.reason is CloseReason.TOPIC_DELETED
        assert here.diary.seqs == expected
        return
    if happening == "it falls behind":
        here.wire.cut_stream()
        here.diary.wait_for_turn(3)
        until_live(follower)
    here.append(3)
    came = range(kept.last + 1, kept.last + 4)
    expected += [seq for seq in came if seq > after or was_recreated]
    here.diary.wait_for(lambda: here.diary.seqs[-1:] == [kept.last + 3])
    assert here.diary.seqs == expected
    turns = ["CaughtUp", "FellBehind", "CaughtUp"]
    assert here.diary.turns == (turns if happening == "it falls behind" else turns[:1])


def check_gaps(here: Followed, kept: Kept, after: int, was_recreated: bool) -> None:
    """Check that a loss gives one gap before the first record, and no loss gives none."""
    gaps = [(gap.from_seq, gap.to_seq, gap.reason) for gap in here.diary.gaps]
    if was_recreated:
        assert gaps == [(1, 0, GapReason.RECREATED)]
    elif after < kept.lost:
        assert gaps == [(after + 1, kept.lost, kept.reason)]
    else:
        assert gaps == []
    kinds = [type(entry) for entry in here.diary.entries]
    if Gap in kinds and Record in kinds:
        assert kinds.index(Gap) < kinds.index(Record)


def test_a_follower_of_a_missing_topic_ends_with_an_error_and_creates_no_topic_c1_14(
    here: Followed,
) -> None:
    """The error comes at once, and the topic is not created."""
    follower = here.follow()
    assert isinstance(follower.exception(20), NotFound)
    assert here.diary.closed.reason is CloseReason.TOPIC_DELETED
    with pytest.raises(NotFound):
        here.client.feeds.get(here.topic)


def test_a_follower_with_the_create_option_creates_a_missing_topic_c1_13(here: Followed) -> None:
    """An existing topic is unchanged."""
    here.live(create=True)
    here.append(2)
    here.diary.wait_for(lambda: here.diary.seqs == [1, 2])
    here.live(create=True)
    assert here.diary.seqs == [1, 2]


def test_a_follower_receives_messages_published_to_its_topic_by_google_clients_c1_1(
    here: Followed,
) -> None:
    """A feed is a topic to which Google clients publish."""
    here.client.feeds.put(here.topic)
    here.live()
    ids = [here.emulator.publish(here.topic, b"paid", ordering_key="k", kind="a") for _ in "12"]
    here.diary.wait_for(lambda: len(here.diary.seqs) == 2)
    first = here.diary.entries[1]
    assert isinstance(first, Record)
    assert (first.message_id, first.data, first.ordering_key) == (ids[0], b"paid", "k")
    assert dict(first.attributes) == {"kind": "a"}
    assert repr(first) == "Record(seq=1, data=b'paid', attributes={'kind': 'a'})"


@pytest.mark.parametrize("mine", ["filter", "exclude_node"])
def test_records_excluded_by_a_followers_filter_advance_the_position_of_the_follower_c1_12(
    here: Followed, mine: str
) -> None:
    """The records are not examined again. This holds for stored records and for pushed ones."""
    options = {
        "filter": {"filter": 'attributes.node = "b"'},
        "exclude_node": {"exclude_node": "a"},
    }[mine]
    here.append(3, node="a")
    follower = here.live(**options)
    assert follower.position.seq == 3
    here.append(2, node="a")
    here.append(1, node="b")
    here.append(2, node="a")
    here.diary.wait_for(lambda: here.diary.seqs == [6])
    eventually(lambda: follower.position.seq == 8)
    assert here.diary.turns == ["CaughtUp"]


def test_many_records_excluded_by_a_filter_are_no_gap_for_a_follower_c1_12(here: Followed) -> None:
    """The filter excludes more records than the broker examines for one frame."""
    here.append(1, node="b")
    here.live(exclude_node="a")
    here.append(2500, node="a")
    here.append(1, node="b")
    here.diary.wait_for(lambda: here.diary.seqs == [1, 2502])
    assert here.diary.turns == ["CaughtUp"]
