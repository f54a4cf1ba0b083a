"""When the server is pinged, and when its silence means that the stream is dead."""

from subscriber.streaming.liveness import PING_EVERY, PONG_WITHIN, Liveness


def opened_and_pinged(at: float = 0.0) -> Liveness:
    liveness = Liveness()
    liveness.opened(at)
    assert liveness.ping_due(at)
    return liveness


def armed(at: float = 0.0) -> Liveness:
    """The server has answered the first ping, so from now on its silence counts."""
    liveness = opened_and_pinged(at)
    liveness.received(is_pong=True)
    return liveness


def test_a_stream_is_pinged_when_it_opens_and_every_30_seconds() -> None:
    """A late look does not make up for missed pings."""
    liveness = opened_and_pinged(at=100.0)
    assert not liveness.ping_due(100.0)
    assert liveness.next_due() == 130.0
    assert not liveness.ping_due(129.9)
    assert liveness.ping_due(130.0)
    assert liveness.ping_due(500.0)
    assert not liveness.ping_due(500.0)
    assert liveness.next_due() == 530.0


def test_without_a_stream_there_is_nothing_to_do() -> None:
    """Neither before the first one opens nor after one has broken."""
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


def test_a_server_that_never_answers_pings_is_not_taken_for_dead() -> None:
    """There are such: older emulators, and proxies."""
    liveness = opened_and_pinged()
    for number in range(1, 100):
        now = number * PING_EVERY
        assert not liveness.is_dead(now)
        assert liveness.ping_due(now)
        liveness.received(is_pong=False)
    assert not liveness.is_dead(1e9)


def test_a_server_that_stops_answering_is_dead_15_seconds_after_the_ping() -> None:
    """The moment is announced, so that nobody has to look before."""
    liveness = armed()
    assert liveness.ping_due(PING_EVERY)
    assert liveness.next_due() == PING_EVERY + PONG_WITHIN
    assert not liveness.is_dead(PING_EVERY + PONG_WITHIN - 0.1)
    assert liveness.is_dead(PING_EVERY + PONG_WITHIN)


def test_any_response_is_a_sign_of_life() -> None:
    """Messages as well as pongs, and each ping asks anew."""
    liveness = armed()
    for number, is_pong in enumerate([True, False, True, False], 1):
        assert liveness.ping_due(number * PING_EVERY)
        liveness.received(is_pong=is_pong)
        assert not liveness.is_dead(number * PING_EVERY + PONG_WITHIN)
    assert liveness.ping_due(5 * PING_EVERY)
    assert liveness.is_dead(5 * PING_EVERY + PONG_WITHIN)


def test_silence_counts_from_the_first_ping_without_an_answer() -> None:
    """A second ping does not begin the wait anew."""
    liveness = armed()
    assert liveness.ping_due(30.0)
    assert liveness.ping_due(60.0)
    assert liveness.is_dead(60.0)


def test_a_server_that_has_answered_is_to_answer_on_each_stream() -> None:
    """What made one fall silent may do so to the next from its beginning."""
    liveness = armed()
    liveness.closed()
    liveness.opened(1000.0)
    assert liveness.ping_due(1000.0)
    assert liveness.next_due() == 1000.0 + PONG_WITHIN
    assert liveness.is_dead(1000.0 + PONG_WITHIN)


def test_while_the_reader_is_paused_silence_means_nothing() -> None:
    """Its answers lie unread: a subscription under full load must not tear down its stream."""
    liveness = armed()
    assert liveness.ping_due(30.0)
    liveness.paused()
    assert not liveness.is_dead(45.0)
    assert liveness.ping_due(60.0)
    assert not liveness.is_dead(1e9)
    assert liveness.next_due() == 90.0


def test_after_a_pause_the_next_ping_counts_again() -> None:
    """One that was sent in the pause does not: its answer may come late."""
    liveness = armed()
    liveness.paused()
    assert liveness.ping_due(30.0)
    liveness.resumed()
    assert not liveness.is_dead(59.0)
    assert liveness.ping_due(60.0)
    assert not liveness.is_dead(74.9)
    assert liveness.is_dead(75.0)
