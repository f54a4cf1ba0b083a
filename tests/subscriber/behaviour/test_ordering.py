"""Ordering keys: one message at a time, without delay, and never past a failed message."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from pullstream import AcknowledgeStatus, FlowControl, Message, SubscriberClient, ThreadScheduler
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Unavailable
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Gate, Log, Stage, keep, stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

FIVE = [b"1", b"2", b"3", b"4", b"5"]


@pytest.fixture(params=[False, True], ids=["at-least-once", "exactly-once"])
def here(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(
        ManualClock(), enable_message_ordering=True, enable_exactly_once_delivery=request.param
    ) as here:
        yield here


class OnFirst:
    """A callback that acknowledges, but treats the first delivery of one message differently."""

    def __init__(self, data: bytes, instead: Callable[[Message], None]) -> None:
        self._data = data
        self._instead = instead

    def __call__(self, message: Message) -> None:
        if message.data == self._data:
            self._data = b""
            self._instead(message)
        else:
            message.ack()


def fail(message: Message) -> None:
    raise ValueError("on purpose")


# ---- the start of the next message -------------------------------------------------------------


def test_the_next_message_of_a_key_runs_when_the_previous_callback_ends_without_an_ack(
    here: Stage,
) -> None:
    """No acknowledgement is needed, but the callback must have ended."""
    gate = Gate(keep)
    here.client.subscribe(SUBSCRIPTION, gate)
    here.publish(b"1", b"2", b"3", key="k")
    gate.wait_for(1)
    # If the key had not held it, the second message would have begun before this one.
    here.publish(b"other")
    gate.wait_for(2)
    assert gate.data == [b"1", b"other"]
    gate.open(2)
    gate.wait_for(3)
    gate.open(2)
    messages = gate.wait_for(4)
    assert gate.data == [b"1", b"other", b"2", b"3"]
    for message in messages:
        assert message.ack_with_response().result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert here.backlog == 0


def test_with_release_after_ack_a_message_waits_for_the_previous_ack_of_its_key(
    here: Stage,
) -> None:
    """Other keys and messages without a key do not wait."""
    log = Log(keep)
    here.client.subscribe(SUBSCRIPTION, log, release_after="ack")
    here.publish(b"1", b"2", b"3", key="k")
    log.wait_for(1)
    here.publish(b"other", key="l")
    log.wait_for(2)
    here.publish(b"without")
    log.wait_for(3)
    assert log.data == [b"1", b"other", b"without"]
    for number, data in ((3, b"2"), (4, b"3")):
        first = next(m for m in reversed(log.messages) if m.data in (b"1", b"2"))
        first.ack()
        assert log.wait_for(number + 1)[-1].data == data
    log.messages[-1].ack()
    eventually(lambda: here.backlog == 2)


def test_the_next_message_of_a_key_waits_for_the_end_of_a_callback_that_has_acked(
    here: Stage,
) -> None:
    """The rest of the callback after its ack still runs before the next message."""
    gate = Gate(keep)

    def ack_first(message: Message) -> None:
        message.ack_with_response().result(TIMEOUT)
        gate(message)

    here.client.subscribe(SUBSCRIPTION, ack_first)
    here.publish(b"1", b"2", key="k")
    gate.wait_for(1)
    here.publish(b"other")
    gate.wait_for(2)
    assert gate.data == [b"1", b"other"]
    gate.open(3)
    gate.wait_for(3)


# ---- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Message.nack, fail], ids=["nack", "error"])
def test_the_messages_of_an_ordering_key_are_redelivered_from_the_failed_one_on(
    here: Stage, failure: Callable[[Message], None]
) -> None:
    """Messages held behind the failed one do not run before its redelivery."""
    log = Log(OnFirst(b"3", failure))
    here.client.subscribe(SUBSCRIPTION, log)
    here.publish(*FIVE, key="k")
    log.wait_for(6)
    eventually(lambda: here.backlog == 0)
    assert log.data == [b"1", b"2", b"3", b"3", b"4", b"5"]


def test_messages_published_after_a_failure_wait_for_the_failed_message_of_their_key(
    here: Stage,
) -> None:
    """Messages that were on their way at the time of the failure wait as well."""
    log = Log(OnFirst(b"0", Message.nack))
    here.client.subscribe(SUBSCRIPTION, log, FlowControl(max_messages=3))
    for number in range(60):
        here.publish(b"%d" % number, key="k")
    eventually(lambda: here.backlog == 0)
    assert log.data[:2] == [b"0", b"0"]
    assert log.data[1:] == [b"%d" % number for number in range(60)]


class NackedLater:
    """A callback that keeps the first message 2, waits in the next message, and acks the others."""

    def __init__(self) -> None:
        self.log = Log()
        self.nacked: Message | None = None
        self.gate = Gate()

    def __call__(self, message: Message) -> None:
        if message.data == b"2" and self.nacked is None:
            self.nacked = message
            self.log.messages.append(message)
        elif message.data == b"3" and len(self.log.messages) == 2:
            self.log.messages.append(message)
            self.gate(message)
        else:
            self.log(message)


def test_a_nack_after_the_end_of_the_callback_restarts_the_ordering_key_at_that_message(
    here: Stage,
) -> None:
    """The key continues with the nacked message, although the next one runs by then.

    That next message does not run again: its redelivery is here when its callback ends.
    """
    handle = NackedLater()
    future = here.client.subscribe(SUBSCRIPTION, handle)
    here.publish(*FIVE, key="k")
    handle.gate.wait_for(1)
    assert handle.nacked is not None
    handle.nacked.nack()
    eventually(lambda: future.statistics().held == len(FIVE[1:]))
    handle.gate.open()
    eventually(lambda: here.backlog == 0)
    assert handle.log.data == [b"1", b"2", b"3", b"2", b"4", b"5"]


def test_a_message_runs_again_after_an_earlier_nack_if_the_server_refuses_its_ack() -> None:
    """With exactly-once delivery the nack of an earlier message of the key ends the lease.

    The redelivery arrives after the end of the callback.
    """
    handle = NackedLater()
    with stage(enable_message_ordering=True, enable_exactly_once_delivery=True) as here:
        future = here.client.subscribe(SUBSCRIPTION, handle)
        here.publish(*FIVE, key="k")
        handle.gate.wait_for(1)
        assert handle.nacked is not None
        with here.faults.silence_streams():
            handle.nacked.nack_with_response().result(TIMEOUT)
            handle.gate.open()
            eventually(lambda: future.statistics().failed == 1)
        eventually(lambda: here.backlog == 0)
    assert handle.log.data == [b"1", b"2", b"3", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("how", ["inside", "later"])
def test_a_delayed_nack_delays_its_ordering_key_and_no_other_key(here: Stage, how: str) -> None:
    """The key continues with the nacked message half a minute later, in order."""
    assert isinstance(here.clock, ManualClock)
    kept: list[Message] = []
    log = Log(OnFirst(b"2", kept.append if how == "later" else lambda m: m.nack(delay=30)))
    here.client.subscribe(SUBSCRIPTION, log, release_after="ack")
    here.publish(*FIVE, key="k")
    log.wait_for(2)
    if how == "later":
        kept[0].nack_with_response(delay=30).result(TIMEOUT)
    here.publish(b"other", key="l")
    log.wait_for(3)
    eventually(lambda: here.backlog == 4)
    here.clock.advance(29)
    here.publish(b"another", key="l")
    log.wait_for(4)
    assert log.data == [b"1", b"2", b"other", b"another"]
    here.clock.advance(2)
    log.wait_for(8)
    assert log.data[4:] == [b"2", b"3", b"4", b"5"]
    eventually(lambda: here.backlog == 0)


@pytest.mark.parametrize(("max_messages", "streams"), [(1, 1), (10, 1), (1000, 1), (10, 3)])
def test_two_subscribers_with_failures_and_broken_streams_keep_the_order_of_keys(
    here: Stage, max_messages: int, streams: int
) -> None:
    """All earlier messages of a key were acknowledged before any subscriber handles a message.

    Each subscriber handles one message of a key at a time, also on a user's executor, and also if
    it has several streams, between which the keys move when streams break.
    """
    clock = here.clock
    assert isinstance(clock, ManualClock)
    lock, chance = threading.Lock(), random.Random(7)
    acked: dict[str, int] = dict.fromkeys("abcd", 0)
    skipped: list[tuple[str, int]] = []
    running: Counter[tuple[str, str]] = Counter()
    at_once: list[str] = []
    handled = threading.Semaphore(0)

    def handle(subscriber: str, message: Message) -> None:
        number, key = int(message.data), message.ordering_key
        with lock:
            running[subscriber, key] += 1
            if running[subscriber, key] > 1:
                at_once.append(key)
            if number > acked[key]:
                skipped.append((key, number))
            chosen = chance.random()
            if chosen >= 0.15:
                acked[key] = max(acked[key], number + 1)
        with lock:
            running[subscriber, key] -= 1
        if chosen < 0.05:
            raise ValueError("on purpose")
        if chosen < 0.15:
            message.nack()
        else:
            message.ack()
        handled.release()

    def wait_for_another() -> None:
        """Wait until a message is handled, or let the leases of lost messages end."""
        if not handled.acquire(timeout=0.2):
            clock.advance(60)

    limits = FlowControl(max_messages=max_messages)
    with (
        ThreadPoolExecutor(5) as executor,
        SubscriberClient(endpoint=here.emulator.endpoint) as second,
    ):
        here.client.subscribe(SUBSCRIPTION, partial(handle, "first"), limits, streams=streams)
        second.subscribe(
            SUBSCRIPTION,
            partial(handle, "second"),
            limits,
            scheduler=ThreadScheduler(executor),
            streams=streams,
        )
        for number in range(50):
            for key in acked:
                here.publish(b"%d" % number, key=key)
        for _ in range(2):
            for _ in range(50):
                wait_for_another()
            here.faults.abort_streams(Unavailable("away"))
        while here.backlog:
            wait_for_another()
    assert skipped == []
    assert at_once == []
    assert acked == dict.fromkeys("abcd", 50)
