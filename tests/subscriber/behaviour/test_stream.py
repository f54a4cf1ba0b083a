"""The stream is reopened after every transient failure and ends with every permanent error."""

from __future__ import annotations

from functools import partial

import grpc
import pytest

from pullstream import FlowControl, SubscriptionState
from pullstream.streaming.stream import PROVEN_AFTER
from pullstream_emulator.engine import Consumer, Engine
from pullstream_protocol.errors import BY_CODE, Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Events, Gate, Log, Stage, stage
from tests.subscriber.clocks import PacedClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

PASSING_CODES = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
)
FINAL_CODES = tuple(code for code in BY_CODE if code not in PASSING_CODES)


def is_streaming(events: Events) -> bool:
    return events.states[-1:] == ["streaming"]


def has_come(clock: PacedClock, moment: float) -> bool:
    return clock.monotonic() >= moment


def consumers(engine: Engine) -> list[Consumer]:
    """Return the broker's consumers, one for each stream."""
    return list(engine.registry.subscription(SUBSCRIPTION).consumers)


# ---- codes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [None, *PASSING_CODES])
def test_a_subscription_reopens_its_stream_after_a_transient_error_or_a_server_close(
    here: Stage, code: grpc.StatusCode | None
) -> None:
    """After a transient code or a close with OK, messages continue, and the state has the cause."""
    events, log = Events(), Log()
    future = here.client.subscribe(SUBSCRIPTION, log, hooks=events)
    eventually(lambda: is_streaming(events))
    if code is None:
        ended = here.faults.close_streams()
    else:
        ended = here.faults.abort_streams(BY_CODE[code]("broken"))
    assert ended.hits == 1
    here.publish(b"after")
    log.wait_for(1)
    eventually(lambda: here.backlog == 0)
    assert future.statistics().reopened == 1
    assert events.states == ["streaming", "reconnecting", "streaming"]
    cause = events.changes[1].cause
    assert cause is None if code is None else isinstance(cause, BY_CODE[code])


@pytest.mark.parametrize("code", FINAL_CODES)
def test_a_permanent_stream_error_ends_the_subscription_and_is_raised_by_its_future(
    here: Stage, code: grpc.StatusCode
) -> None:
    """The future raises the error in the middle of the work, and the last state has it."""
    events, log = Events(), Log()
    future = here.client.subscribe(SUBSCRIPTION, log, hooks=events)
    eventually(lambda: is_streaming(events))
    here.faults.abort_streams(BY_CODE[code]("final"))
    error = future.exception(TIMEOUT)
    assert isinstance(error, BY_CODE[code])
    assert "final" in str(error)
    assert events.states == ["streaming", "closing", "closed"]
    assert [change.cause for change in events.changes[1:]] == [error, error]
    assert future.state is SubscriptionState.CLOSED


# ---- states ------------------------------------------------------------------------------------


def test_every_state_change_of_a_subscription_is_reported_in_order_with_cause_and_time() -> None:
    """Each change from the first stream over an outage to the end is reported once."""
    clock = PacedClock(start=1_000.0)
    with stage() as here:
        events, log = Events(), Log()
        manager = here.manage(log, clock=clock, hooks=(events,))
        eventually(lambda: is_streaming(events))
        with here.faults.error("StreamingPull", Unavailable("still away")) as away:
            clock.advance(5)
            here.faults.abort_streams(Unavailable("away"))
            eventually(lambda: len(events.changes) == 2)
            here.pass_time(clock, lambda: away.hits >= 3)
        here.pass_time(clock, lambda: is_streaming(events))
        manager.future.cancel()
        manager.future.result(TIMEOUT)
    told = [(change.previous.value, change.state.value) for change in events.changes]
    assert told == [
        ("connecting", "streaming"),
        ("streaming", "reconnecting"),
        ("reconnecting", "streaming"),
        ("streaming", "closing"),
        ("closing", "closed"),
    ]
    causes = [change.cause for change in events.changes]
    assert isinstance(causes[1], Unavailable)
    assert [cause for cause in causes if cause is not causes[1]] == [None] * 4
    since = [change.since for change in events.changes]
    assert since[:2] == [1_000.0, 1_005.0]
    assert since == sorted(since)


def test_pauses_between_reconnect_attempts_grow_while_the_server_is_away() -> None:
    """Eight attempts take at least half of 0.1 + 0.2 + 0.4 + ... + 6.4 seconds."""
    clock = PacedClock()
    with stage() as here:
        away = here.faults.error("StreamingPull", Unavailable("away"))
        here.manage(Log(), clock=clock)
        here.pass_time(clock, lambda: away.hits >= 8)
        assert clock.monotonic() >= 6.3


def test_a_subscription_ends_with_the_last_error_after_an_outage_of_the_configured_length() -> None:
    """The subscription does not give up earlier, and tries again until then."""
    clock = PacedClock()
    with stage() as here:
        events = Events()
        away = here.faults.error("StreamingPull", Unavailable("away"))
        manager = here.manage(Log(), clock=clock, give_up_after=60, hooks=(events,))
        here.pass_time(clock, partial(has_come, clock, 55), longest_step=2.0)
        assert manager.future.running()
        here.pass_time(clock, manager.future.done)
        error = manager.future.exception(TIMEOUT)
    assert isinstance(error, Unavailable)
    assert "away" in str(error)
    assert away.hits > 5
    assert events.states == ["reconnecting", "closing", "closed"]


def test_the_time_limit_for_a_server_outage_does_not_include_earlier_outages() -> None:
    """Only the time without a working stream counts."""
    clock = PacedClock()
    with stage() as here:
        events = Events()
        manager = here.manage(Log(), clock=clock, give_up_after=60, hooks=(events,))
        eventually(lambda: is_streaming(events))
        for _ in range(3):
            with here.faults.error("StreamingPull", Unavailable("away")):
                here.faults.abort_streams(Unavailable("away"))
                eventually(lambda: not is_streaming(events))
                over = clock.monotonic() + 40
                here.pass_time(clock, partial(has_come, clock, over), longest_step=2.0)
            here.pass_time(clock, lambda: is_streaming(events))
            # The stream works after it has delivered messages or has been open for this long.
            stood = clock.monotonic() + PROVEN_AFTER
            here.pass_time(clock, partial(has_come, clock, stood), longest_step=2.0)
        assert manager.future.running()


def test_a_stream_that_breaks_after_one_ping_answer_does_not_reset_the_outage_time_limit() -> None:
    """Streams that answer a ping and break at once do not end an outage.

    The answer to the first ping shows that a server is there, but not that messages will come. The
    pauses grow, and in the end the subscription gives up.
    """
    clock = PacedClock()
    with stage() as here:
        events = Events()
        manager = here.manage(Log(), clock=clock, give_up_after=30, hooks=(events,))

        def break_what_streams() -> bool:
            if is_streaming(events):
                here.faults.abort_streams(Unavailable("away"))
                # A stream that is open for PROVEN_AFTER counts as working.
                eventually(lambda: not is_streaming(events))
            return manager.future.done()

        here.pass_time(clock, break_what_streams, longest_step=1.0)
        error = manager.future.exception(TIMEOUT)
    assert isinstance(error, Unavailable)
    assert events.states.count("streaming") < 15


# ---- silence -----------------------------------------------------------------------------------


def test_a_subscription_opens_a_new_stream_when_the_server_stops_answering_pings() -> None:
    """A stream whose server stops answering pings is replaced.

    Another stream is opened 15 s after the unanswered ping, and the messages of the dead one arrive
    on it.
    """
    clock = PacedClock()
    with stage() as here:
        events, log = Events(), Log()
        here.manage(log, clock=clock, hooks=(events,))
        eventually(lambda: is_streaming(events))
        (first,) = here.emulator.inspect(consumers)
        with here.faults.silence_streams() as silence:
            here.publish(b"lost on the way")
            silence.wait_for_hits()
            here.pass_time(clock, partial(has_come, clock, 44), longest_step=2.0)
            assert events.states == ["streaming"]
            here.pass_time(clock, lambda: "reconnecting" in events.states)
            # Otherwise the broker could still write the message to the dead stream.
            eventually(lambda: not first.is_here)
        here.pass_time(clock, lambda: is_streaming(events))
        log.wait_for(1)
        eventually(lambda: here.backlog == 0)
    # The ping goes out after 30 s.
    assert clock.monotonic() < 50
    assert "heartbeat" in str(events.changes[1].cause)


def test_a_subscription_keeps_its_stream_to_a_server_that_never_answered_a_ping() -> None:
    """Older servers do not answer pings."""
    clock = PacedClock()
    with stage() as here:
        events, log = Events(), Log()
        with here.faults.silence_streams() as silence:
            manager = here.manage(log, clock=clock, hooks=(events,))
            silence.wait_for_hits()
            here.beat(manager, clock, times=10)
        here.publish(b"at last")
        log.wait_for(1)
        assert manager.future.statistics().reopened == 0


def test_a_subscriber_paused_by_flow_control_keeps_its_stream_despite_unread_ping_answers() -> None:
    """While flow control stops the reader, answers to pings stay unread."""
    clock = PacedClock()
    with stage() as here:
        events, gate = Events(), Gate()
        manager = here.manage(gate, clock=clock, hooks=(events,), max_messages=1)
        eventually(lambda: is_streaming(events))
        here.publish(b"1", b"2")
        gate.wait_for(1)
        here.beat(manager, clock, times=10)
        gate.open(2)
        gate.wait_for(2)
        assert manager.future.statistics().reopened == 0


def test_a_subscription_recovers_after_a_network_has_silently_dropped_all_bytes() -> None:
    """No byte passes and no connection breaks. The client notices, and continues afterwards."""
    clock = PacedClock()
    with stage(relay=True, return_leases_on_disconnect=True) as here:
        events, log = Events(), Log()
        here.manage(log, clock=clock, hooks=(events,))
        eventually(lambda: is_streaming(events))
        with here.faults.black_hole():
            here.publish(b"a")
            here.pass_time(clock, lambda: "reconnecting" in events.states)
        here.pass_time(clock, lambda: here.backlog == 0)
    assert set(log.data) == {b"a"}
    assert "heartbeat" in str(events.changes[1].cause)


def test_callbacks_run_and_acks_are_sent_while_the_stream_is_broken(here: Stage) -> None:
    """Only the reading stops."""
    events, gate = Events(), Gate()
    future = here.client.subscribe(
        SUBSCRIPTION, gate, FlowControl(max_messages=5), hooks=events, max_workers=1
    )
    here.publish(b"1", b"2", b"3")
    gate.wait_for(1)
    with here.faults.error("StreamingPull", Unavailable("away")) as away:
        here.faults.abort_streams(Unavailable("away"))
        away.wait_for_hits(2)
        gate.open(3)
        gate.wait_for(3)
        # Their leases continue, so the acknowledgements count.
        eventually(lambda: here.backlog == 0)
        assert future.state is SubscriptionState.RECONNECTING
