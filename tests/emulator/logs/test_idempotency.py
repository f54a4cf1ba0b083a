"""Idempotency keys of appends: their lifetime and their maximum number."""

from __future__ import annotations

import pytest

from pullstream_emulator.logs import idempotency
from pullstream_emulator.logs.idempotency import SWEEP_AFTER, Appended, IdempotencyKeys
from pullstream_protocol.errors import ResourceExhausted
from tests.emulator.logs.driver import Driver


def test_a_feed_remembers_an_idempotency_key_for_the_idempotency_window() -> None:
    keys = IdempotencyKeys(window=120)
    keys.remember("a", Appended(1, 3), now=10)
    assert keys.find("a", now=129.9) == (1, 3)
    assert keys.find("b", now=129.9) is None
    assert keys.find("a", now=130) is None
    assert len(keys) == 0


def test_a_shortened_idempotency_window_forgets_keys_from_before_the_change() -> None:
    keys = IdempotencyKeys(window=120)
    keys.remember("a", Appended(1, 1), now=0)
    keys.window = 10
    assert keys.find("a", now=50) is None


def test_idempotency_keys_of_an_idle_feed_expire() -> None:
    driver = Driver()
    driver.append("x", key="a")
    driver.advance(60)
    driver.append("x", key="b")
    keys = driver.feed().keys
    driver.advance(60 + SWEEP_AFTER)
    assert len(keys) == 1
    driver.advance(60)
    assert len(keys) == 0
    assert driver.engine.next_due() is None


def test_a_feed_append_beyond_the_maximum_number_of_idempotency_keys_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker never forgets a key early, because the client would not notice."""
    monkeypatch.setattr(idempotency, "MAX_KEYS", 2)
    driver = Driver()
    driver.put()
    for key in ("a", "b"):
        driver.append("x", key=key)
    with pytest.raises(ResourceExhausted, match="2 idempotency keys"):
        driver.append("x", key="c")
    assert driver.append("again", key="a") == [1]
    assert driver.append("no key") == [3]
    driver.advance(120)
    assert driver.append("x", key="c") == [4]
