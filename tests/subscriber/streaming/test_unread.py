"""How old the leases of what was not read at once may be."""

from __future__ import annotations

from subscriber.streaming.unread import Unread


def test_what_is_read_at_once_has_fresh_leases() -> None:
    assert Unread(100).age(10, 1000.0) == 0


def test_a_window_after_a_pause_may_have_been_sent_when_it_began() -> None:
    """No more than that: the server counts what is outstanding, too."""
    unread = Unread(100)
    unread.paused(1000.0)
    assert unread.age(60, 1030.9) == 30
    assert unread.age(60, 1031.0) == 31
    assert unread.age(60, 1032.0) == 0


def test_what_lies_unread_lies_through_the_next_pause() -> None:
    """Some of it was read in between, and what came meanwhile is behind the rest."""
    unread = Unread(100)
    unread.paused(1000.0)
    assert unread.age(60, 1030.0) == 30
    unread.paused(1030.0)
    assert unread.age(100, 1050.0) == 50
    unread.paused(1060.0)
    assert unread.age(1, 1062.0) == 2
