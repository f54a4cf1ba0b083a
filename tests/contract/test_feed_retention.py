"""Retention of a topic: C2.2 to C2.4."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.contract.conftest import FACES, open_face
from tests.contract.face import Face, refused, texts


def kept(face: Face, name: str = "orders") -> list[int]:
    """Return the numbers of the readable records."""
    return [record["$seq"] for record in face.read(name, limit=1000)["records"]]


def test_a_feed_keeps_at_most_the_number_of_records_of_its_cap_c2_2(face: Face) -> None:
    face.put_topic("orders", cap_records=3)
    for number in range(1, 8):
        face.append("orders", texts(number))
        assert kept(face) == list(range(max(1, number - 2), number + 1))
    assert face.get_topic("orders")["count"] == 3


def test_a_feed_with_a_byte_cap_keeps_the_newest_records_that_fit_into_the_cap_c2_2(
    face: Face,
) -> None:
    face.append("orders", texts("x" * 100))
    size = face.get_topic("orders")["bytes"]
    face.put_topic("orders", cap_bytes=3 * size)
    for _ in range(5):
        face.append("orders", texts("x" * 100))
    assert kept(face) == [4, 5, 6]


def test_feed_records_older_than_the_ttl_are_not_delivered_c2_2(
    face: Face, clock: ManualClock
) -> None:
    """A record of exactly the age ttl_ms is delivered; an older one is not."""
    face.put_topic("orders", ttl_ms=5000)
    face.append("orders", texts("old"))
    clock.advance(1)
    face.append("orders", texts("young"))
    clock.advance(4)
    assert kept(face) == [1, 2]
    clock.advance(0.001)
    assert kept(face) == [2]
    assert face.get_topic("orders")["earliest_seq"] == 2
    clock.advance(60)
    assert kept(face) == []
    assert face.get_topic("orders")["earliest_seq"] == 3


def test_the_times_of_successive_feed_records_never_decrease_c2_2(
    face: Face, clock: ManualClock
) -> None:
    for _ in range(3):
        face.append("orders", texts(1, 2))
        clock.advance(0.5)
    times = [record["$ts"] for record in face.read("orders")["records"]]
    assert times == sorted(times)
    assert times[-1] - times[0] == 1000
    assert abs(times[0] - clock.now() * 1000 + 1500) < 2


def test_an_append_to_a_full_feed_with_discard_old_evicts_old_records_c2_3(
    face: Face,
) -> None:
    face.put_topic("orders", cap_records=2, discard="old")
    appended = face.append("orders", texts(1, 2, 3))
    assert (appended["first_seq"], appended["last_seq"]) == (1, 3)
    assert kept(face) == [2, 3]


def test_a_full_feed_with_discard_reject_refuses_an_append_and_uses_no_number_c2_3(
    face: Face,
) -> None:
    face.put_topic("orders", cap_records=3, discard="reject")
    face.append("orders", texts(1, 2))
    with refused(422, "topic_full"):
        face.append("orders", texts(3, 4))
    assert (kept(face), face.get_topic("orders")["head_seq"]) == ([1, 2], 2)
    assert face.append("orders", texts("fits"))["first_seq"] == 3


def test_a_full_feed_accepts_appends_after_records_have_expired_c2_3(
    face: Face, clock: ManualClock
) -> None:
    face.put_topic("orders", cap_records=1, ttl_ms=1000, discard="reject")
    face.append("orders", texts("old"))
    clock.advance(1.001)
    assert face.append("orders", texts("new"))["first_seq"] == 2


def test_the_cap_and_ttl_settings_limit_the_memory_of_a_feed_c2_4(
    face: Face, emulator: Emulator, clock: ManualClock
) -> None:
    """Expired records are removed even if nothing reads the topic."""
    face.put_topic("orders", cap_records=10, ttl_ms=5000)
    for _ in range(50):
        face.append("orders", texts(*["x" * 1000] * 10))
    bytes_kept = emulator.inspect(lambda engine: engine.kept_bytes)
    assert bytes_kept == face.get_topic("orders")["bytes"] < 15_000
    clock.advance(5.001)
    assert emulator.inspect(lambda engine: engine.kept_bytes) == 0


@pytest.fixture(params=FACES)
def small(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Face]:
    """Yield a broker that keeps at most 10,000 bytes in total."""
    with Emulator(clock=clock, max_bytes=10_000, rest=request.param == "http") as emulator:
        face = open_face(request.param, emulator)
        yield face
        face.close()


def test_an_append_above_the_total_byte_limit_of_the_broker_is_refused_as_throttled_c2_4(
    small: Face,
) -> None:
    small.put_topic("one", cap_records=2)
    small.put_topic("two")
    small.append("one", texts("x" * 4000, "x" * 4000))
    with refused(429, "throttled"):
        small.append("two", texts("x" * 4000))
    assert small.get_topic("two")["head_seq"] == 0
    # Only writes are checked against the ceiling.
    assert small.read("one")["head_seq"] == 2
    small.delete_records("one", before_seq=2)
    assert small.append("two", texts("x" * 4000))["first_seq"] == 1
