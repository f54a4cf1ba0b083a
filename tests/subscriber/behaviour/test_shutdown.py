"""Shutdown: in time, from any thread, with no messages kept and every future resolved."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pullstream import (
    AckFuture,
    AcknowledgeError,
    AcknowledgeStatus,
    FlowControl,
    Message,
    StreamingPullFuture,
    SubscriberClient,
    ThreadScheduler,
)
from pullstream.exceptions import SubscriberClosed
from pullstream.futures import ShutdownMode
from pullstream.streaming import shutdown
from pullstream.streaming.shutdown import FLUSH_TIMEOUT
from pullstream_protocol.clock import SYSTEM_CLOCK, ManualClock
from pullstream_protocol.errors import Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Events, Gate, Log, Stage, keep, stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually
from tests.threads import assert_ended_since

# The seconds that a shutdown may take if no callback has to be waited for. A busy machine needs a
# part of it. A step that waits for nothing takes longer.
GRACE = 0.8 * FLUSH_TIMEOUT

# The time limit of a shutdown that must not use it up.
PATIENT = 60.0

both_modes = pytest.mark.parametrize("mode", ["drain", "nack"])


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def here(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(enable_message_ordering=True, enable_exactly_once_delivery=request.param) as here:
        yield here


class Acking:
    """Settles messages at the end of a gate and keeps the futures."""

    def __init__(self) -> None:
        self.futures: list[AckFuture] = []
        self.gate = Gate(lambda message: self.futures.append(message.ack_with_response()))

    def statuses(self, count: int) -> list[AcknowledgeStatus]:
        eventually(lambda: len(self.futures) == count)
        errors = [future.exception(TIMEOUT) for future in self.futures]
        assert all(error is None or isinstance(error, AcknowledgeError) for error in errors)
        return [getattr(error, "error_code", AcknowledgeStatus.SUCCESS) for error in errors]


def close_in_time(future: StreamingPullFuture, timeout: float, mode: ShutdownMode) -> None:
    start = SYSTEM_CLOCK.monotonic()
    # It returns earlier than the end if the machine is busy and the limit is short.
    future.close(timeout, mode)
    assert future.result(GRACE) is True
    assert SYSTEM_CLOCK.monotonic() - start < GRACE


def in_background(future: StreamingPullFuture, timeout: float, mode: ShutdownMode) -> Future[bool]:
    """Close on another thread and return the future result."""
    closed: Future[bool] = Future()
    thread = threading.Thread(
        target=lambda: closed.set_result(future.close(timeout, mode)), daemon=True
    )
    thread.start()
    return closed


# ---- modes and situations ----------------------------------------------------------------------


@both_modes
def test_closing_a_subscription_without_messages_takes_no_time(
    here: Stage, mode: ShutdownMode
) -> None:
    """The close does not use up its time limit."""
    events = Events()
    future = here.client.subscribe(SUBSCRIPTION, Log(), hooks=events)
    eventually(lambda: events.states == ["streaming"])
    close_in_time(future, 0.0 if mode == "nack" else PATIENT, mode)


def test_a_draining_close_nacks_waiting_messages_before_running_callbacks_end(here: Stage) -> None:
    """Messages that wait for a worker or behind their key are free while callbacks still run."""
    acking = Acking()
    future = here.client.subscribe(SUBSCRIPTION, acking.gate, max_workers=2)
    here.publish(*[b"o%d" % number for number in range(5)], key="k")
    acking.gate.wait_for(1)
    here.publish(*[b"u%d" % number for number in range(5)])
    acking.gate.wait_for(2)
    eventually(lambda: future.statistics().received == 10)
    closed = in_background(future, TIMEOUT, "drain")
    # The running message of the key blocks the later ones.
    eventually(lambda: sorted(here.free()) == [b"u1", b"u2", b"u3", b"u4"])
    assert not closed.done()
    acking.gate.open(2)
    assert closed.result(TIMEOUT)
    assert acking.statuses(2) == [AcknowledgeStatus.SUCCESS] * 2
    assert here.backlog == 8
    assert len(here.free()) == 8
    assert len(acking.gate.messages) == 2


def test_a_close_in_mode_nack_returns_messages_to_the_server_and_later_acks_fail(
    here: Stage,
) -> None:
    """All messages are returned at once. A later acknowledgement gets an error status."""
    acking = Acking()
    future = here.client.subscribe(SUBSCRIPTION, acking.gate, max_workers=2)
    here.publish(*[b"o"] * 5, key="k")
    acking.gate.wait_for(1)
    here.publish(*[b"u"] * 5)
    acking.gate.wait_for(2)
    eventually(lambda: future.statistics().received == 10)
    close_in_time(future, PATIENT, "nack")
    assert len(here.free()) == 10
    acking.gate.open(2)
    assert AcknowledgeStatus.SUCCESS not in acking.statuses(2)
    assert here.backlog == 10
    assert len(acking.gate.messages) == 2


def test_at_its_time_limit_a_draining_close_returns_unfinished_messages_to_the_server(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback that never ends cannot delay the end, and its lost disposition is logged.

    The last two seconds are reserved to return the messages.
    """
    acking, clock = Acking(), ManualClock()
    future = here.manage(acking.gate, clock=clock).future
    here.publish(b"1", b"2", key="k")
    here.publish(b"3")
    acking.gate.wait_for(2)
    future.begin_close(PATIENT, "drain")
    clock.advance(PATIENT - 3)
    eventually(lambda: future.statistics().leased == 2)
    assert not future.done()
    clock.advance(1)
    assert future.result(TIMEOUT) is True
    assert sorted(here.free()) == [b"1", b"2", b"3"]
    assert "2 messages are returned and will be redelivered" in caplog.text
    acking.gate.open(2)
    assert AcknowledgeStatus.SUCCESS not in acking.statuses(2)


def test_a_draining_close_nacks_messages_that_their_callbacks_left_unsettled(here: Stage) -> None:
    """The callbacks have ended without a disposition, so there is nothing to wait for."""
    log = Log(keep)
    future = here.client.subscribe(SUBSCRIPTION, log)
    here.publish(*[b"x"] * 5)
    log.wait_for(5)
    close_in_time(future, PATIENT, "drain")
    assert len(here.free()) == 5


@both_modes
def test_closing_a_subscription_whose_stream_does_not_answer_ends_within_its_time_limit(
    here: Stage, mode: ShutdownMode
) -> None:
    """The other calls still work, so earlier acknowledgements arrive."""
    log = Log(keep)
    future = here.client.subscribe(SUBSCRIPTION, log)
    here.publish(b"1", b"2")
    first, _ = log.wait_for(2)
    here.faults.silence_streams()
    here.faults.delay("Acknowledge", 0.1)
    ack = first.ack_with_response()
    close_in_time(future, PATIENT, mode)
    assert ack.result(timeout=0) is AcknowledgeStatus.SUCCESS
    here.faults.clear()
    eventually(lambda: len(here.free()) == 1)


@both_modes
def test_closing_a_subscription_interrupts_its_reconnect_pause(
    here: Stage, mode: ShutdownMode
) -> None:
    """The clock does not move, so the pause is interrupted and does not end by itself."""
    away = here.faults.error("StreamingPull", Unavailable("away"))
    events = Events()
    manager = here.manage(Log(), clock=ManualClock(), hooks=(events,))
    eventually(lambda: events.states == ["reconnecting"])
    close_in_time(manager.future, 0.0 if mode == "nack" else PATIENT, mode)
    assert away.hits == 1


@both_modes
@pytest.mark.parametrize("relay", [False, True], ids=["broker hangs", "network dead"])
def test_a_server_that_never_answers_does_not_delay_a_close_beyond_its_time_limit(
    mode: ShutdownMode, relay: bool
) -> None:
    """The server does not answer, so the close ends in time and each future has status OTHER."""
    with stage(relay=relay) as here:
        acking = Acking()
        future = here.client.subscribe(SUBSCRIPTION, acking.gate, max_workers=2)
        here.publish(*[b"x"] * 5)
        acking.gate.wait_for(2)
        with here.faults.black_hole():
            acking.gate.open()
            acking.gate.wait_for(3)
            eventually(lambda: len(acking.futures) == 1)
            close_in_time(future, 0.5, mode)
            assert acking.statuses(1) == [AcknowledgeStatus.OTHER]
            acking.gate.open(2)
            assert AcknowledgeStatus.SUCCESS not in acking.statuses(3)


def test_a_second_close_of_a_subscription_can_only_shorten_its_shutdown(here: Stage) -> None:
    """`close(mode="nack")` shortens a patient drain, and a later drain does not prolong it."""
    acking = Acking()
    future = here.client.subscribe(SUBSCRIPTION, acking.gate)
    here.publish(b"x")
    acking.gate.wait_for(1)
    patient = in_background(future, PATIENT, "drain")
    eventually(future.cancelled)
    close_in_time(future, PATIENT, "nack")
    assert patient.result(TIMEOUT)
    assert future.close(PATIENT, "drain")
    assert here.free() == [b"x"]
    acking.gate.open()


# ---- any thread --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["drain", "nack", None])
@pytest.mark.parametrize("await_callbacks", [False, True])
def test_a_message_callback_may_close_its_own_subscription_without_a_deadlock(
    here: Stage, mode: ShutdownMode | None, await_callbacks: bool
) -> None:
    """The callback does not wait for itself, and its earlier ack succeeds.

    Without a mode, it cancels several times.
    """
    known: Future[StreamingPullFuture] = Future()
    returned: Future[bool] = Future()

    def close(message: Message) -> None:
        message.ack()
        future = known.result(TIMEOUT)
        if mode is None:
            assert future.cancel()
        returned.set_result(future.cancel() if mode is None else future.close(mode=mode))

    here.publish(b"x")
    known.set_result(
        here.client.subscribe(
            SUBSCRIPTION, close, await_callbacks_on_shutdown=await_callbacks, max_workers=1
        )
    )
    assert isinstance(returned.result(TIMEOUT), bool)
    assert returned.result() or mode is not None
    assert known.result().result(TIMEOUT) is True
    assert here.backlog == 0


def test_concurrent_and_repeated_closes_of_a_subscription_await_one_shutdown(here: Stage) -> None:
    """Concurrent closes in both modes, with and without time limits, share one end."""
    events, log = Events(), Log()
    future = here.client.subscribe(SUBSCRIPTION, log, hooks=events)
    here.publish(*[b"x"] * 50)
    log.wait_for(10)
    together = threading.Barrier(8)

    def close(number: int) -> bool:
        together.wait(TIMEOUT)
        if number == 7:
            future.cancel()
            return future.result(TIMEOUT)
        return future.close(
            10.0 if number % 2 else None, mode="nack" if number % 3 == 0 else "drain"
        )

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(close, range(8))) == [True] * 8
    assert future.close()
    assert future.cancel()
    assert events.states == ["streaming", "closing", "closed"]
    eventually(lambda: len(here.free()) == here.backlog)


def test_closing_the_client_ends_all_its_subscriptions(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All subscriptions end in time, whatever their state, and earlier acks arrive."""
    # Callbacks may use a tenth of a second, and the last calls two seconds.
    monkeypatch.setattr(shutdown, "_RESERVED_PART", 1.0)
    away = "projects/p/subscriptions/away"
    here.other.create_subscription(name=away, topic="projects/p/topics/topic")
    acking, log = Acking(), Log()
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    futures = [
        client.subscribe(SUBSCRIPTION, acking.gate, FlowControl(max_messages=1)),
        client.subscribe(away, log),
    ]
    here.publish(b"1", b"2")
    log.wait_for(2)
    acking.gate.wait_for(1)
    start = SYSTEM_CLOCK.monotonic()
    client.close(timeout=2.1)
    assert [future.result(GRACE) for future in futures] == [True, True]
    assert SYSTEM_CLOCK.monotonic() - start < GRACE
    assert here.emulator.backlog(away) == 0
    assert sorted(here.free()) == [b"1", b"2"]
    client.close()
    acking.gate.open(2)


def test_leaving_the_with_block_of_a_client_ends_its_subscriptions(here: Stage) -> None:
    """Subscriptions end before the connection, so the last acknowledgements are not lost."""
    log = Log()
    before = set(threading.enumerate())
    with SubscriberClient(endpoint=here.emulator.endpoint) as client:
        futures = [client.subscribe(SUBSCRIPTION, log) for _ in range(3)]
        here.publish(*[b"x"] * 30)
        log.wait_for(30)
    assert [future.result(timeout=0) for future in futures] == [True] * 3
    assert here.backlog == 0
    assert_ended_since(before)


def test_a_subscriber_receives_all_messages_after_an_earlier_subscriber_was_closed(
    here: Stage,
) -> None:
    """The first subscription takes no messages from the second one."""
    for _ in range(3):
        log = Log()
        future = here.client.subscribe(SUBSCRIPTION, log)
        here.publish(b"x")
        log.wait_for(1)
        eventually(lambda: here.backlog == 0)
        assert future.close()


def publish_twenty(here: Stage) -> list[bytes]:
    """Publish ten messages without a key and ten of one key.

    With three workers most wait or are held.
    """
    unordered = [f"u{number}".encode() for number in range(10)]
    ordered = [f"o{number}".encode() for number in range(10)]
    here.publish(*unordered)
    here.publish(*ordered, key="k")
    return sorted(unordered + ordered)


@pytest.mark.parametrize("await_callbacks", [False, True])
@pytest.mark.parametrize("foreign", [False, True])
def test_cancelling_a_subscription_leaves_no_thread_no_lease_and_no_unresolved_ack_future(
    here: Stage, await_callbacks: bool, foreign: bool
) -> None:
    """Of twenty messages, three are in a callback. The others are free at once."""
    futures: list[AckFuture] = []
    gate = Gate(lambda message: futures.append(message.ack_with_response()))
    published = publish_twenty(here)
    # This call opens the connection, whose own thread stays.
    assert len(here.free()) == 20
    before = set(threading.enumerate())
    with ThreadPoolExecutor(3) as executor:
        future = here.client.subscribe(
            SUBSCRIPTION,
            gate,
            scheduler=ThreadScheduler(executor) if foreign else ThreadScheduler(max_workers=3),
            await_callbacks_on_shutdown=await_callbacks,
        )
        gate.wait_for(3)
        assert here.free() == []
        future.cancel()
        if await_callbacks:
            with pytest.raises(concurrent.futures.TimeoutError):
                future.result(timeout=0.2)
            gate.open(3)
        assert future.result(TIMEOUT) is True
        assert len(here.free()) == (17 if await_callbacks else 20)
        gate.open(3)
        eventually(lambda: len(futures) == 3)
    errors = [future.exception(timeout=TIMEOUT) for future in futures]
    if await_callbacks:
        assert errors == [None] * 3
        assert here.backlog == 17
    else:
        assert all(isinstance(error, AcknowledgeError) for error in errors)
        assert sorted(here.free()) == published
    assert len(gate.messages) == 3
    assert_ended_since(before)


def test_a_message_callback_may_cancel_its_subscription_and_then_raise(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is reported, the message is returned, and the subscription ends as requested."""
    known: Future[StreamingPullFuture] = Future()

    def stop_and_fail(message: Message) -> None:
        known.result(TIMEOUT).cancel()
        raise ValueError("and more")

    here.publish(b"a")
    with caplog.at_level(logging.ERROR):
        future = here.client.subscribe(
            SUBSCRIPTION, stop_and_fail, await_callbacks_on_shutdown=True
        )
        known.set_result(future)
        assert future.result(TIMEOUT) is True
    assert [record.message[:15] for record in caplog.records] == ["callback raised"]
    assert here.free() == [b"a"]


@pytest.mark.parametrize("await_callbacks", [False, True])
@pytest.mark.parametrize("foreign", [False, True])
def test_a_message_callback_may_close_its_client_without_a_deadlock(
    here: Stage, await_callbacks: bool, foreign: bool
) -> None:
    """The callback does not wait for itself, and the connection ends with the last subscription."""
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    closed = threading.Event()

    def close(message: Message) -> None:
        message.ack()
        client.close()
        closed.set()

    here.publish(b"a")
    with ThreadPoolExecutor(2) as executor:
        future = client.subscribe(
            SUBSCRIPTION,
            close,
            scheduler=ThreadScheduler(executor) if foreign else None,
            await_callbacks_on_shutdown=await_callbacks,
        )
        assert closed.wait(TIMEOUT)
        assert future.result(TIMEOUT) is True
    assert here.backlog == 0
    eventually(lambda: is_disconnected(client))


def is_disconnected(client: SubscriberClient) -> bool:
    try:
        client.list_subscriptions(project="projects/p", timeout=TIMEOUT)
    except SubscriberClosed as error:
        return "closed channel" in str(error)
    return False


def test_the_done_callback_of_a_subscription_future_may_close_the_client_and_raise(
    here: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The callback comes after the end. Its error is logged and affects nothing else."""
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    called = threading.Event()

    class CallbackError(Exception):
        """An error of this run of the test, because repeated errors are not logged."""

    def close_and_fail(future: Any) -> None:
        client.close()
        called.set()
        raise CallbackError

    future = client.subscribe(SUBSCRIPTION, Message.ack)
    future.add_done_callback(close_and_fail)
    future.cancel()
    assert called.wait(TIMEOUT)
    assert future.result(TIMEOUT) is True
    eventually(lambda: "of a future raised" in caplog.text)


def test_the_done_callback_of_an_ack_future_may_close_the_client_without_a_deadlock(
    here: Stage,
) -> None:
    """The callback runs on the dispatcher's thread, which the shutdown waits for."""
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    closed = threading.Event()

    def close(future: Future[Any]) -> None:
        client.close()
        closed.set()

    future = client.subscribe(
        SUBSCRIPTION, lambda message: message.ack_with_response().add_done_callback(close)
    )
    here.publish(b"a")
    assert closed.wait(TIMEOUT)
    assert future.result(TIMEOUT) is True


@pytest.mark.parametrize("attempt", range(10))
def test_a_subscribe_call_during_client_close_is_refused_or_its_subscription_ends(
    here: Stage, attempt: int
) -> None:
    """The subscribe is refused, or the subscription ends with the client, at once in both cases."""
    before = set(threading.enumerate())
    client = SubscriberClient(endpoint=here.emulator.endpoint)
    together = threading.Barrier(2)

    def subscribe() -> bool:
        together.wait(TIMEOUT)
        try:
            return client.subscribe(SUBSCRIPTION, Message.ack).result(TIMEOUT)
        except SubscriberClosed:
            return True

    with ThreadPoolExecutor(1) as pool:
        subscribed = pool.submit(subscribe)
        together.wait(TIMEOUT)
        client.close()
        assert subscribed.result(TIMEOUT) is True
    assert_ended_since(before)


@pytest.mark.parametrize("settle", [Message.ack, Message.nack, Message.drop])
def test_an_ack_or_nack_after_the_end_of_a_subscription_does_not_settle_the_message(
    here: Stage, settle: Callable[[Message], None]
) -> None:
    """The message was returned at the end, and another subscriber may have it."""
    gate = Gate(settle)
    here.publish(b"a")
    future = here.client.subscribe(SUBSCRIPTION, gate)
    gate.wait_for(1)
    future.cancel()
    assert future.result(TIMEOUT) is True
    gate.open()
    assert here.free() == [b"a"]
