"""Flow control: validated limits, and a gauge that pauses and resumes at exact loads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream import FlowControl
from pullstream.flow_control import RESUME_BELOW, LoadGauge
from tests.threads import on_threads


def test_flow_control_defaults_equal_those_of_the_official_client() -> None:
    """A user can migrate by changing an import."""
    assert FlowControl()[:5] == (104_857_600, 1000, 3600, 0, 0)
    assert FlowControl().checked() == FlowControl()


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("max_bytes", 0, "at least 1"),
        ("max_messages", -5, "at least 1"),
        ("max_lease_duration", 0, "above 0"),
        ("min_duration_per_lease_extension", 9, "0 or between 10 and 600"),
        ("min_duration_per_lease_extension", 601, "0 or between 10 and 600"),
        ("max_duration_per_lease_extension", 5, "0 or between 10 and 600"),
        ("max_duration_per_lease_extension", -1, "0 or between 10 and 600"),
    ],
)
def test_the_error_for_a_flow_control_setting_out_of_range_names_the_setting(
    field: str, value: int, limit: str
) -> None:
    """The error has the value and the allowed range."""
    with pytest.raises(ValueError, match=f"^{field} is {value}; .*{limit}"):
        FlowControl(**{field: value}).checked()


@pytest.mark.parametrize("field", ["max_bytes", "max_messages"])
@pytest.mark.parametrize("value", ["10", 2.5, None, True])
def test_the_flow_control_settings_max_messages_and_max_bytes_must_be_whole_numbers(
    field: str, value: Any
) -> None:
    """The server accepts only whole numbers."""
    with pytest.raises(TypeError, match=f"^{field} is {value!r}; it must be an int"):
        FlowControl(**{field: value}).checked()


@pytest.mark.parametrize("field", ["max_lease_duration", "max_duration_per_lease_extension"])
@pytest.mark.parametrize("value", ["10", None, True])
def test_duration_settings_of_flow_control_must_be_numbers(field: str, value: Any) -> None:
    """Python's own error would only mention `<` and two types."""
    with pytest.raises(TypeError, match=f"^{field} is {value!r}; it must be a number"):
        FlowControl(**{field: value}).checked()


def test_flow_control_refuses_a_minimum_lease_extension_above_the_maximum() -> None:
    """The error names both, and equal values are allowed."""
    with pytest.raises(ValueError, match=r"min_.* \(30\) is above max_.* \(20\)"):
        FlowControl(
            min_duration_per_lease_extension=30, max_duration_per_lease_extension=20
        ).checked()
    FlowControl(min_duration_per_lease_extension=20, max_duration_per_lease_extension=20).checked()
    FlowControl(min_duration_per_lease_extension=30).checked()


class Stream:
    """A stream that a gauge pauses and resumes."""

    def __init__(self, **limits: int) -> None:
        self.paused = False
        self.changes = 0
        self.gauge = LoadGauge(FlowControl(**limits), pause=self.pause, resume=self.resume)

    def pause(self) -> None:
        assert not self.paused
        self.paused = True
        self.changes += 1

    def resume(self) -> None:
        assert self.paused
        self.paused = False
        self.changes += 1


def test_flow_control_pauses_a_stream_at_a_limit_and_resumes_it_below_four_fifths() -> None:
    """The distance between the limits prevents a pause with each message."""
    stream = Stream(max_messages=10)
    stream.gauge.add_load(9, 0)
    assert not stream.paused
    stream.gauge.add_load(1, 0)
    assert stream.paused
    stream.gauge.release_load(2, 0)
    assert (stream.paused, stream.gauge.messages) == (True, 8)
    stream.gauge.release_load(1, 0)
    assert not stream.paused


def test_the_load_of_flow_control_is_the_larger_share_of_its_message_and_byte_limits() -> None:
    """A few large messages pause the stream as well as many small ones."""
    stream = Stream(max_messages=100, max_bytes=1000)
    stream.gauge.add_load(1, 1000)
    assert (stream.paused, stream.gauge.load) == (True, 1.0)
    stream.gauge.release_load(1, 1000)
    stream.gauge.add_load(100, 100)
    assert (stream.paused, stream.gauge.bytes) == (True, 100)


def test_flow_control_accepts_a_message_above_the_byte_limit_as_the_only_message() -> None:
    """A message above the limit has arrived already and only blocks the others."""
    stream = Stream(max_bytes=10)
    stream.gauge.add_load(1, 5_000_000)
    assert stream.paused
    stream.gauge.release_load(1, 5_000_000)
    assert not stream.paused


def test_flow_control_with_max_messages_1_resumes_the_stream_after_each_message() -> None:
    stream = Stream(max_messages=1)
    for _ in range(3):
        stream.gauge.add_load(1, 0)
        assert stream.paused
        stream.gauge.release_load(1, 0)
        assert not stream.paused


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 12), st.integers(0, 200)), max_size=50),
    st.integers(1, 20),
    st.integers(1, 1000),
)
def test_flow_control_pauses_the_stream_always_at_full_load_and_never_without_load(
    steps: list[tuple[bool, int, int]], max_messages: int, max_bytes: int
) -> None:
    """The messages come in any sequence, and the load is 0 at the end."""
    stream = Stream(max_messages=max_messages, max_bytes=max_bytes)
    batches: list[tuple[int, int]] = []
    for arrives, messages, size in steps:
        if arrives:
            batches.append((messages, size))
            stream.gauge.add_load(messages, size)
        elif batches:
            stream.gauge.release_load(*batches.pop())
        load = stream.gauge.load
        assert stream.paused or load < 1.0
        assert not stream.paused or load >= RESUME_BELOW
    for batch in batches:
        stream.gauge.release_load(*batch)
    assert (stream.gauge.messages, stream.gauge.bytes, stream.paused) == (0, 0, False)


def test_flow_control_resumes_the_stream_if_threads_add_and_release_messages_concurrently() -> None:
    """One thread adds messages, and others release them at the same time."""
    stream = Stream(max_messages=1)
    added = threading.Semaphore(0)

    def release() -> None:
        for _ in range(1000):
            added.acquire()
            stream.gauge.release_load(1, 1)

    with on_threads(release, times=3):
        for _ in range(3000):
            stream.gauge.add_load(1, 1)
            added.release()
    assert (stream.gauge.messages, stream.gauge.bytes, stream.paused) == (0, 0, False)
    assert stream.changes % 2 == 0
