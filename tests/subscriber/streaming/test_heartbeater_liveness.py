"""The times of pings, and the silence after which a stream counts as dead."""

from pullstream.streaming.heartbeater import PING_EVERY, PONG_WITHIN, Liveness


def opened_and_pinged(at: float = 0.0) -> Liveness:
    liveness = Liveness()
    liveness.opened(at)
    assert liveness.ping_due(at)
    return liveness


def armed(at: float = 0.0) -> Liveness:
    """Return a state in which the server has answered the first ping, so its silence counts."""
    liveness = opened_and_pinged(at)
    liveness.received(is_pong=True)
    return liveness


def test_a_stream_is_pinged_when_it_opens_and_every_30_seconds() -> None:
    """A late look does not send the missed pings."""
    liveness = opened_and_pinged(at=100.0)
    assert not liveness.ping_due(100.0)
    assert liveness.next_due() == 130.0
    assert not liveness.ping_due(129.9)
    assert liveness.ping_due(130.0)
    assert liveness.ping_due(500.0)
    assert not liveness.ping_due(500.0)
    assert liveness.next_due() == 530.0


def test_no_ping_and_no_silence_check_is_due_without_an_open_stream() -> None:
    """The first stream has not opened, or a stream has broken."""
    liveness = Liveness()
    assert (liveness.next_due(), liveness.ping_due(1e9), liveness.is_dead(1e9)) == (
        None,
        False,
        False,
    )
    liveness = armed()
    assert liveness.ping_due(PING_EVERY)
    liveness.closed()
    assert liveness.next_due() is None
    assert not liveness.is_dead(1e9)


def test_a_stream_whose_server_never_answered_a_ping_is_not_declared_dead() -> None:
    """Older emulators and proxies do not answer pings."""
    liveness = opened_and_pinged()
    for number in range(1, 100):
        now = number * PING_EVERY
        assert not liveness.is_dead(now)
        assert liveness.ping_due(now)
        liveness.received(is_pong=False)
    assert not liveness.is_dead(1e9)


def test_a_stream_whose_server_stops_answering_pings_is_dead_15_seconds_after_the_ping() -> None:
    """The time is known in advance, so nothing has to look earlier."""
    liveness = armed()
    assert liveness.ping_due(PING_EVERY)
    assert liveness.next_due() == PING_EVERY + PONG_WITHIN
    assert not liveness.is_dead(PING_EVERY + PONG_WITHIN - 0.1)
    assert liveness.is_dead(PING_EVERY + PONG_WITHIN)


def test_messages_on_a_stream_count_as_answers_to_its_pings() -> None:
    """Messages count as well as pongs, and each ping starts a new wait."""
    liveness = armed()
    for number, is_pong in enumerate([True, False, True, False], 1):
        assert liveness.ping_due(number * PING_EVERY)
        liveness.received(is_pong=is_pong)
        assert not liveness.is_dead(number * PING_EVERY + PONG_WITHIN)
    assert liveness.ping_due(5 * PING_EVERY)
    assert liveness.is_dead(5 * PING_EVERY + PONG_WITHIN)


def test_the_time_until_a_silent_stream_is_dead_counts_from_its_first_unanswered_ping() -> None:
    """A second ping does not restart the wait."""
    liveness = armed()
    assert liveness.ping_due(30.0)
    assert liveness.ping_due(60.0)
    assert liveness.is_dead(60.0)


def test_a_server_that_answered_pings_on_one_stream_must_answer_them_on_each_new_stream() -> None:
    """The cause of one silent stream may also affect the next one from its beginning."""
    liveness = armed()
    liveness.closed()
    liveness.opened(1000.0)
    assert liveness.ping_due(1000.0)
    assert liveness.next_due() == 1000.0 + PONG_WITHIN
    assert liveness.is_dead(1000.0 + PONG_WITHIN)


def test_unanswered_pings_do_not_make_a_stream_dead_while_its_reader_is_paused() -> None:
    """Answers stay unread, so a subscription under full load must not replace its stream."""
    liveness = armed()
    assert liveness.ping_due(30.0)
    liveness.paused()
    assert not liveness.is_dead(45.0)
    assert liveness.ping_due(60.0)
    assert not liveness.is_dead(1e9)
    assert liveness.next_due() == 90.0


def test_a_stream_is_dead_if_the_first_ping_after_a_reader_pause_stays_unanswered() -> None:
    """A ping sent during the pause does not count, because its answer may come late."""
    liveness = armed()
    liveness.paused()
    assert liveness.ping_due(30.0)
    liveness.resumed()
    assert not liveness.is_dead(59.0)
    assert liveness.ping_due(60.0)
    assert not liveness.is_dead(74.9)
    assert liveness.is_dead(75.0)
