"""The table of sessions: how long one lives, and how many there may be."""

from __future__ import annotations

import pytest

from emulator.feeds import sessions
from protocol.errors import NotFound, ResourceExhausted, Unavailable
from tests.emulator.feeds.driver import Driver, Reader


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.put()
    return driver


def test_one_that_is_never_attached_is_over_after_its_time(driver: Driver) -> None:
    watch = driver.watch()
    driver.advance(299.9)
    assert driver.feeds.find(watch.id) is watch
    driver.advance(0.1)
    with pytest.raises(NotFound, match="begin another"):
        driver.feeds.find(watch.id)


def test_the_time_counts_from_the_end_of_the_stream(driver: Driver) -> None:
    reader = Reader(driver.watch())
    driver.advance(10)
    reader.take()
    for _ in range(100):
        driver.advance(15)
        reader.take()
    reader.stream.detach()
    driver.advance(299)
    assert driver.feeds.find(reader.watch.id) is reader.watch


def test_those_that_are_over_are_swept_out_every_30_s(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that there is room for others."""
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    for _ in range(3):
        driver.watch()
    with pytest.raises(ResourceExhausted, match="3 watches"):
        driver.watch()
    driver.advance(330)
    for _ in range(3):
        driver.watch()


def test_nothing_is_due_where_there_is_no_session(driver: Driver) -> None:
    assert driver.engine.next_due() is None
    driver.watch()
    driver.advance(1000)
    driver.advance(1000)
    assert driver.engine.next_due() is None


def test_a_reset_ends_streams_and_forgets_sessions(driver: Driver) -> None:
    reader = Reader(driver.watch())
    reader.take()
    driver.feeds.reset()
    driver.engine.reset()
    assert reader.wakes == 1
    with pytest.raises(NotFound):
        reader.next()
    with pytest.raises(NotFound):
        driver.feeds.find(reader.watch.id)


def test_a_stop_ends_streams_and_waits_but_no_session(driver: Driver) -> None:
    reader = Reader(driver.watch())
    reader.take()
    wakes: list[str] = []
    waiting = driver.feeds.wait_for(driver.state().topic, lambda: wakes.append("woken"))
    driver.feeds.disconnect(Unavailable("The broker is shutting down."))
    with pytest.raises(Unavailable):
        reader.next()
    assert (wakes, isinstance(waiting.ended, Unavailable)) == (["woken"], True)
    assert driver.feeds.find(reader.watch.id) is reader.watch
