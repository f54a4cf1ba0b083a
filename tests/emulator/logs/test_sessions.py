"""The table of sessions: their lifetime and their maximum number."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from pullstream_emulator.logs import sessions
from pullstream_emulator.logs.watch import session_size
from pullstream_protocol.errors import NotFound, ResourceExhausted, Unavailable
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.emulator.logs.driver import PROJECT, TOPIC, Driver, Reader


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.put()
    return driver


def test_a_watch_session_without_a_stream_expires(driver: Driver) -> None:
    watch = driver.watch()
    driver.advance(299.9)
    assert driver.feeds.find(watch.id) is watch
    driver.advance(0.1)
    with pytest.raises(NotFound, match="create a new one"):
        driver.feeds.find(watch.id)


def test_a_watch_session_expires_a_fixed_time_after_the_end_of_its_stream(driver: Driver) -> None:
    reader = Reader(driver.watch())
    driver.advance(10)
    reader.take()
    for _ in range(100):
        driver.advance(15)
        reader.take()
    reader.stream.detach()
    driver.advance(299)
    assert driver.feeds.find(reader.watch.id) is reader.watch


def test_expired_watch_sessions_are_removed_every_30_seconds(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal makes room for others."""
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    for _ in range(3):
        driver.watch()
    with pytest.raises(ResourceExhausted, match=r"3 watches.* End watches that nobody reads"):
        driver.watch()
    driver.advance(330)
    for _ in range(3):
        driver.watch()


def test_the_engine_has_no_due_time_when_all_watch_sessions_have_expired(driver: Driver) -> None:
    assert driver.engine.next_due() is None
    driver.watch()
    driver.advance(1000)
    driver.advance(1000)
    assert driver.engine.next_due() is None


def test_a_broker_reset_ends_watch_streams_and_removes_their_sessions(driver: Driver) -> None:
    reader = Reader(driver.watch())
    reader.take()
    driver.feeds.reset()
    driver.engine.reset()
    assert reader.wakes == 1
    with pytest.raises(NotFound):
        reader.next()
    with pytest.raises(NotFound):
        driver.feeds.find(reader.watch.id)


def test_a_broker_shutdown_ends_watch_streams_and_waiting_reads_but_keeps_watch_sessions(
    driver: Driver,
) -> None:
    reader = Reader(driver.watch())
    reader.take()
    wakes: list[str] = []
    waiting = driver.feeds.wait_for(driver.state().topic, lambda: wakes.append("woken"))
    driver.feeds.disconnect(Unavailable("The broker is shutting down."))
    with pytest.raises(Unavailable):
        reader.next()
    assert (wakes, isinstance(waiting.ended, Unavailable)) == (["woken"], True)
    assert driver.feeds.find(reader.watch.id) is reader.watch


# ---- memory --------------------------------------------------------------------------------------

SPEC = feeds.WatchSpec(topics={TOPIC: feeds.Position()})


def in_use(driver: Driver) -> int:
    return driver.engine.registry.usage.watches


@pytest.mark.parametrize("filter_text", ["", "attributes:a" + " AND attributes:a" * 14])
@pytest.mark.parametrize("count", [1, 256])
def test_the_estimated_size_of_a_watch_session_is_close_to_its_real_memory_use(
    driver: Driver, count: int, filter_text: str
) -> None:
    """The number is approximate, and too high rather than too low."""
    spec = feeds.WatchSpec()
    for number in range(count):
        topic = f"{PROJECT}/topics/topic-{number:04}"
        driver.put(topic)
        spec.topics[topic].filter = filter_text
    driver.feeds.create(spec)
    gc.collect()
    tracemalloc.start()
    try:
        watches = [driver.feeds.create(spec) for _ in range(10)]
        readers = [Reader(watch) for watch in watches]
        gc.collect()
        measured = tracemalloc.get_traced_memory()[0] / len(readers)
    finally:
        tracemalloc.stop()
    assert measured * 0.8 < session_size(spec) < measured * 5


def test_watch_sessions_count_towards_the_byte_limit_of_the_broker() -> None:
    """Sessions and messages are both refused when their sum reaches the limit."""
    size = session_size(SPEC)
    driver = Driver(max_bytes=3 * size + 100)
    driver.put()
    watches = [driver.watch() for _ in range(3)]
    with pytest.raises(ResourceExhausted, match=rf"may keep {3 * size + 100} \(--max-bytes\)"):
        driver.watch()
    with pytest.raises(ResourceExhausted, match=rf"{3 * size} bytes of watches.* end watches"):
        driver.append("x" * 200)
    driver.feeds.end(watches[0].id)
    driver.append("x" * 200)
    with pytest.raises(ResourceExhausted):
        driver.watch()


def test_a_new_watch_session_beyond_the_byte_limit_for_watch_sessions_is_refused(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit applies even if messages have no limit. Expired sessions make room at once."""
    size = session_size(SPEC)
    monkeypatch.setattr(sessions, "MAX_SESSION_BYTES", 2 * size)
    driver.watch()
    driver.advance(200)
    driver.watch()
    with pytest.raises(ResourceExhausted, match=rf"use {2 * size} of at most {2 * size} bytes"):
        driver.watch()
    driver.advance(100)
    driver.watch()


def test_the_memory_of_an_ended_watch_session_is_freed(driver: Driver) -> None:
    """The memory is free after every way in which a session ends."""
    driver.feeds.end(driver.watch().id)
    assert in_use(driver) == 0
    driver.watch()
    driver.advance(1000)
    assert in_use(driver) == 0
    driver.append("a", "b")
    reader = Reader(driver.watch())
    reader.next()
    assert in_use(driver) > session_size(SPEC)
    driver.feeds.reset()
    driver.engine.reset()
    assert in_use(driver) == 0
