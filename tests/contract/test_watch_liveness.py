"""Heartbeats: C2.22."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream_protocol.clock import ManualClock
from tests.contract.face import Face, WatchHandle, data_of, expect, texts


def idle_watch(face: Face, **options: Any) -> WatchHandle:
    """Return a watch that has just reported CaughtUp."""
    face.put_topic("orders")
    watch = face.watch({"orders": {"tail": True}}, **options)
    expect(watch, "caught-up")
    return watch


def test_a_watch_stream_sends_a_heartbeat_after_15_s_without_data_c2_22(
    face: Face, clock: ManualClock
) -> None:
    watch = idle_watch(face)
    clock.advance(14.9)
    face.append("orders", texts("data"))
    assert data_of(watch.next()) == ["data"]
    # The record was a sign of life as well.
    clock.advance(14.9)
    face.append("orders", texts("more"))
    assert data_of(watch.next()) == ["more"]
    for _ in range(2):
        clock.advance(15)
        expect(watch, "hb")


def test_a_heartbeat_of_a_watch_has_no_event_id_and_moves_no_cursor_c2_22(
    face: Face, clock: ManualClock
) -> None:
    watch = idle_watch(face)
    clock.advance(15)
    assert watch.next() == ("hb", "", None)
    face.append("orders", texts("next"))
    assert watch.next()[2]["from_seq"] == 0


@pytest.mark.parametrize(
    ("asked_ms", "seconds"), [(5000, 5), (1, 1), (1000, 1), (60_000, 60), (600_000, 60)]
)
def test_a_requested_heartbeat_interval_of_a_watch_is_limited_to_1_to_60_seconds_c2_22(
    face: Face, clock: ManualClock, asked_ms: int, seconds: float
) -> None:
    watch = idle_watch(face, heartbeat_ms=asked_ms)
    clock.advance(seconds - 0.01)
    # If a heartbeat had been sent, it would come before this record.
    face.append("orders", texts("first"))
    assert data_of(watch.next()) == ["first"]
    clock.advance(seconds)
    expect(watch, "hb")
