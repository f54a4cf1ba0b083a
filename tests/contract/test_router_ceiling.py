"""Routers in a broker whose memory ceiling is reached: C2.4, C2.11."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.contract.conftest import FACES, open_face
from tests.contract.face import Face, refused, texts

# Enough for five records with their overhead, and not for six.
MAX_BYTES = 2250
LARGE = "x" * 400


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Face]:
    with Emulator(clock=clock, rest=True, max_bytes=MAX_BYTES) as emulator:
        face = open_face(request.param, emulator)
        yield face
        face.close()


def test_the_routers_of_a_full_broker_wait_for_room_and_lose_no_record_c2_4_c2_11(
    face: Face, clock: ManualClock
) -> None:
    """A write above the ceiling is refused. A forward waits, and continues when there is room."""
    face.put_topic("feed", cap_records=100)
    face.put_router("feed-to-web", source="feed", dest="web")
    for number in range(3):
        face.append("feed", texts(f"{number}{LARGE}"))
    with refused(429):
        face.append("feed", texts(LARGE))
    told = face.get_router("feed-to-web")
    assert (told["forwarded_total"], told["position"]) == (2, 2)
    clock.advance(1)
    assert face.get_router("feed-to-web") == told
    face.delete_records("feed", before_seq=3)
    clock.advance(0.2)
    told = face.get_router("feed-to-web")
    assert (told["forwarded_total"], told["position"]) == (3, 3)
    answer = face.read("web")
    assert [record["data"] for record in answer["records"]] == [f"{n}{LARGE}" for n in range(3)]
    assert answer["tombstone"] is None
