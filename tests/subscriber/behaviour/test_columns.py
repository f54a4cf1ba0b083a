"""Callbacks that take columns."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pullstream import (
    AcknowledgeError,
    AcknowledgeStatus,
    AsyncSubscriberClient,
    FlowControl,
    Hooks,
    Message,
    MessageColumns,
)
from pullstream.hooks import LeaseLoss
from pullstream.message import Disposition
from pullstream.streaming.settings import Batching
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.behaviour.stage import SUBSCRIPTION, TOPIC, Events, Stage, stage
from tests.subscriber.clocks import PacedClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

FOREVER = 3600.0
NOW = Batching(100, 0.0, columns=True)


class Received:
    """A callback that keeps the columns, and then calls the given function."""

    def __init__(self, then: Callable[[MessageColumns], Any] = MessageColumns.ack) -> None:
        self._then = then
        self._changed = threading.Condition()
        self.columns: list[MessageColumns] = []

    def __call__(self, columns: MessageColumns) -> None:
        with self._changed:
            self.columns.append(columns)
            self._changed.notify_all()
        self._then(columns)

    def wait_for(self, count: int) -> list[MessageColumns]:
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.columns) >= count, TIMEOUT)
            assert enough, f"only {len(self.columns)} of {count} columns came"
            return list(self.columns)

    @property
    def data(self) -> list[list[bytes]]:
        return [columns.data for columns in self.columns]


def keep(columns: MessageColumns) -> None:
    """Settle nothing, so that the test can settle the messages."""


class LostLeases(Hooks):
    def __init__(self) -> None:
        self.lost: list[bytes] = []

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        self.lost += [message.data for message in messages]


class Gate(Received):
    """A callback that waits until the test opens it, and then acknowledges."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self._leave = threading.Semaphore(0)

    def open(self, count: int = 1) -> None:
        self._leave.release(count)

    def _wait(self, columns: MessageColumns) -> None:
        assert self._leave.acquire(timeout=3 * TIMEOUT)
        columns.ack()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Return a list to which each new message is added."""
    made: list[Message] = []
    plain = Message.__init__

    def note(self: Message, *args: Any) -> None:
        made.append(self)
        plain(self, *args)

    monkeypatch.setattr(Message, "__init__", note)
    return made


@pytest.fixture
def on_clock() -> Iterator[Stage]:
    with stage(PacedClock()) as here:
        yield here


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def one_list(here: Stage, count: int, **options: Any) -> tuple[MessageColumns, Received]:
    """Publish messages, and return them as unsettled columns."""
    received = Received(keep)
    options = {"max_messages": count, "max_latency": FOREVER, **options}
    here.client.subscribe_batch(SUBSCRIPTION, received, columns=True, **options)
    here.publish(*numbers(count))
    return received.wait_for(1)[0], received


def test_columns_have_the_fields_of_all_messages_in_order(here: Stage) -> None:
    """Iterating yields ordinary messages with the same content."""
    received = Received()
    here.client.subscribe_batch(
        SUBSCRIPTION, received, max_messages=3, max_latency=FOREVER, columns=True
    )
    published = [
        pubsub.PubsubMessage(data=b"a", attributes={"x": "1", "y": "2"}),
        pubsub.PubsubMessage(attributes={"x": "1"}, ordering_key="k"),
        pubsub.PubsubMessage(data=b"c"),
    ]
    here.publisher.publish(topic=TOPIC, messages=published)
    (columns,) = received.wait_for(1)
    assert len(columns) == 3
    assert columns.data == [b"a", b"", b"c"]
    assert columns.message_ids == ["1", "2", "3"]
    assert columns.ordering_keys == ["", "k", ""]
    assert columns.attributes == [{"x": "1", "y": "2"}, {"x": "1"}, {}]
    assert columns.delivery_attempts == [None, None, None]
    assert [
        (m.data, m.message_id, m.ordering_key, dict(m.attributes), m.delivery_attempt)
        for m in columns
    ] == list(
        zip(
            columns.data,
            columns.message_ids,
            columns.ordering_keys,
            columns.attributes,
            columns.delivery_attempts,
            strict=True,
        )
    )
    assert [message.publish_time for message in columns] == columns.publish_times


def test_columns_are_acknowledged_without_an_object_for_each_message(
    here: Stage, made: list[Message]
) -> None:
    """All messages leave flow control and the backlog, and count as acknowledged."""
    received = Received()
    future = here.client.subscribe_batch(
        SUBSCRIPTION, received, max_messages=10, max_latency=0.01, columns=True
    )
    here.publish(*numbers(95))
    eventually(lambda: here.backlog == 0)
    eventually(lambda: future.statistics().leased == 0)
    statistics = future.statistics()
    assert (statistics.received, statistics.acked, statistics.leased_bytes) == (95, 95, 0)
    assert sorted(data for some in received.data for data in some) == sorted(numbers(95))
    assert statistics.latency.p50 > 0
    assert made == []


def test_long_responses_are_divided_and_short_ones_share_a_list(here: Stage) -> None:
    """A list has at most `max_messages`. It may end at the end of a response."""
    received = Received()
    here.publish(*numbers(25))
    future = here.client.subscribe_batch(
        SUBSCRIPTION, received, max_messages=10, max_latency=FOREVER, columns=True
    )
    received.wait_for(2)
    eventually(lambda: here.backlog == 5)
    for count, total in ((2, 27), (3, 30), (1, 31)):
        here.publish(*numbers(count))
        # Otherwise one response could have several of these.
        eventually(lambda total=total: future.statistics().received == total)  # type: ignore[misc]
    eventually(lambda: here.backlog == 1)
    assert max(map(len, received.columns)) == 10
    assert sum(map(len, received.columns)) == 30


def test_a_mask_nacks_the_chosen_messages_of_columns_and_ack_acknowledges_the_others(
    here: Stage,
) -> None:
    """Only the nacked messages are redelivered. Each message counts once."""
    received = Received(keep)
    future = here.client.subscribe_batch(
        SUBSCRIPTION, received, max_messages=6, max_latency=FOREVER, columns=True
    )
    here.publish(*numbers(6))
    (columns,) = received.wait_for(1)
    columns.nack([number in (1, 4) for number in range(6)], delay=600)
    columns.nack([number == 1 for number in range(6)])
    columns.ack()
    columns.ack()
    eventually(lambda: here.backlog == 2)
    eventually(lambda: future.statistics().leased == 0)
    assert (future.statistics().acked, future.statistics().nacked) == (4, 2)
    nacked = [m.data for m in columns if m.settled is Disposition.NACK]
    assert nacked == [b"1", b"4"]


def test_nack_without_a_mask_nacks_all_unsettled_messages_of_columns(here: Stage) -> None:
    """Acknowledged messages keep their disposition."""
    seen = Received(keep)
    future = here.client.subscribe_batch(
        SUBSCRIPTION, seen, max_messages=4, max_latency=0.01, columns=True
    )
    here.publish(*numbers(4))
    (columns,) = seen.wait_for(1)
    next(iter(columns)).ack()
    columns.nack(delay=600)
    columns.ack()
    eventually(lambda: here.backlog == 3)
    eventually(lambda: future.statistics().leased == 0)
    assert (future.statistics().acked, future.statistics().nacked) == (1, 3)


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        ([True], ValueError, "mask has 1 values; it must have one for each of the 3 messages"),
        ([True, False, 1], TypeError, r"mask\[2\] is 1; it must be True, to nack the message, or"),
        ([None, False, True], TypeError, r"mask\[0\] is None; it must be True"),
    ],
)
def test_an_invalid_mask_is_refused_and_nacks_nothing(
    here: Stage, mask: Any, error: type[Exception], text: str
) -> None:
    """The messages can be settled afterwards."""
    columns, _ = one_list(here, 3)
    with pytest.raises(error, match=text):
        columns.nack(mask)
    with pytest.raises(ValueError, match="delay is 601; it must be between 0 and 600"):
        columns.nack(delay=601)
    columns.ack()
    eventually(lambda: here.backlog == 0)


def test_an_arrow_array_may_be_the_mask_of_a_nack(here: Stage) -> None:
    """It is the result of a comparison of columns."""
    pa = pytest.importorskip("pyarrow")
    columns, _ = one_list(here, 3)
    rows = columns.to_arrow()
    assert rows.column("data").to_pylist() == columns.data
    assert rows.column("message_id").to_pylist() == columns.message_ids
    columns.nack(pa.array([False, True, False]), delay=600)
    columns.ack()
    eventually(lambda: here.backlog == 1)


def test_messages_of_columns_can_be_settled_one_by_one_before_the_rest(here: Stage) -> None:
    """`ack` leaves them as they are."""
    columns, _ = one_list(here, 5)
    first, second, *_ = columns
    assert first.ack_with_response().result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert second.nack_with_response(600).result(TIMEOUT) is AcknowledgeStatus.SUCCESS
    assert here.backlog == 4
    columns.ack()
    eventually(lambda: here.backlog == 1)


def test_the_messages_of_acknowledged_columns_are_acknowledged(here: Stage) -> None:
    """Iterating after `ack` shows messages that are settled."""
    columns, _ = one_list(here, 3)
    columns.ack()
    assert {message.settled and message.settled.value for message in columns} == {"ack"}
    columns.nack()
    eventually(lambda: here.backlog == 0)


def test_unsettled_messages_are_nacked_when_a_callback_of_columns_raises(here: Stage) -> None:
    """The error counts once, and the acknowledged messages stay acknowledged."""

    def fail_first(columns: MessageColumns) -> None:
        if len(received.columns) == 1:
            next(iter(columns)).ack()
            raise ValueError("on purpose")
        columns.ack()

    received = Received(fail_first)
    future = here.client.subscribe_batch(
        SUBSCRIPTION, received, max_messages=3, max_latency=0.01, max_workers=1, columns=True
    )
    here.publish(*numbers(3))
    eventually(lambda: here.backlog == 0)
    assert received.data[0] == [b"0", b"1", b"2"]
    assert sorted(data for some in received.data[1:] for data in some) == [b"1", b"2"]
    assert future.statistics().callback_errors == 1


def test_columns_that_a_callback_settled_before_it_raised_are_not_nacked(here: Stage) -> None:
    """All were acknowledged together."""

    def fail(columns: MessageColumns) -> None:
        columns.ack()
        raise ValueError("on purpose")

    future = here.client.subscribe_batch(
        SUBSCRIPTION, fail, max_messages=3, max_latency=0.01, columns=True
    )
    here.publish(*numbers(3))
    eventually(lambda: here.backlog == 0)
    eventually(lambda: future.statistics().leased == 0)
    assert (future.statistics().acked, future.statistics().nacked) == (3, 0)


# ---- leases --------------------------------------------------------------------------------------


def test_leases_are_extended_while_a_callback_holds_columns(
    on_clock: Stage, made: list[Message]
) -> None:
    """No other client gets the messages, also after some were settled singly."""
    here, received = on_clock, Received(keep)
    manager = here.manage(received, batching=NOW)
    here.publish(*numbers(3))
    (columns,) = received.wait_for(1)
    here.advance(120)
    assert here.free() == []
    assert manager.statistics().extended > 0
    assert made == []
    next(iter(columns)).ack()
    eventually(lambda: here.backlog == 2)
    here.advance(120)
    assert here.free() == []
    columns.ack()
    eventually(lambda: here.backlog == 0)
    assert (manager.statistics().acked, manager.statistics().leased) == (3, 0)


def test_columns_are_given_up_after_max_lease_duration_and_a_late_ack_counts(
    on_clock: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages leave flow control, and are delivered again."""
    here, received = on_clock, Received(keep)
    manager = here.manage(received, batching=NOW, max_lease_duration=100)
    here.publish(*numbers(3))
    (columns,) = received.wait_for(1)
    here.advance(98)
    with caplog.at_level(logging.WARNING):
        here.advance(2, extending=False)
        eventually(lambda: "leases of 3 messages (max_lease_duration)" in caplog.text)
    assert manager.statistics().expired == 3
    here.advance(20, extending=False)
    eventually(lambda: sum(map(len, received.wait_for(2)[1:])) == 3)
    columns.ack()
    eventually(lambda: manager.statistics().acked == 3)
    for again in received.columns[1:]:
        again.ack()
    eventually(lambda: here.backlog == 0)
    assert manager.statistics().acked == 6


def test_a_hook_that_hears_of_lost_leases_needs_no_object_for_each_message_of_columns(
    on_clock: Stage, made: list[Message]
) -> None:
    """It gets the messages when their leases are lost."""
    here, received, hook = on_clock, Received(keep), LostLeases()
    here.manage(received, batching=NOW, hooks=[hook], max_lease_duration=100)
    here.publish(*numbers(3))
    received.wait_for(1)
    here.advance(98)
    assert made == []
    here.advance(2, extending=False)
    eventually(lambda: hook.lost == numbers(3))


def test_columns_that_waited_longer_than_their_lease_do_not_begin(on_clock: Stage) -> None:
    """The process was stopped for longer than the lease, while the columns waited for a worker."""
    here, gate = on_clock, Gate()
    manager = here.manage(gate, batching=Batching(1, 0.0, columns=True), workers=1)
    here.publish(b"runs")
    gate.wait_for(1)
    here.publish(b"waits")
    eventually(lambda: manager.statistics().waiting == 1)
    leaser = manager._in_flight.leaser
    with leaser.lock:
        for batch in list(leaser._table._table._where):
            batch.lease_ends = 0.0
    gate.open()
    eventually(lambda: manager.statistics().expired == 1)
    assert gate.data == [[b"runs"]]


# ---- exactly-once delivery -----------------------------------------------------------------------


def test_columns_with_exactly_once_delivery_begin_when_the_server_has_confirmed_the_leases() -> (
    None
):
    """A message whose lease is over by then is left out, and comes with its new lease."""
    with stage(ManualClock(), enable_exactly_once_delivery=True) as here:
        received = Received()
        # The subscription's clock does not move, as if its process had been stopped.
        with here.faults.drop("ModifyAckDeadline", times=1) as held:
            manager = here.manage(received, clock=ManualClock(), batching=NOW)
            here.publish(b"a")
            held.wait_for_hits()
            assert received.columns == []
            assert isinstance(here.clock, ManualClock)
            here.clock.advance(61)
            eventually(lambda: manager.statistics().received == 2)
        received.wait_for(1)
        eventually(lambda: here.backlog == 0)
        assert received.data == [[b"a"]]
        eventually(lambda: manager.statistics().expired == 1)


@pytest.mark.subscription(enable_exactly_once_delivery=True)
def test_columns_with_exactly_once_delivery_tell_the_result_of_each_ack(here: Stage) -> None:
    """A message whose lease was lost fails, and the others succeed."""
    columns, _ = one_list(here, 3)
    messages = list(columns)
    here.other.modify_ack_deadline(
        subscription=SUBSCRIPTION, ack_ids=[messages[1].ack_id], ack_deadline_seconds=0
    )
    futures = [message.ack_with_response() for message in messages]
    results = [future.exception(TIMEOUT) for future in futures]
    assert [result is None for result in results] == [True, False, True]
    assert isinstance(results[1], AcknowledgeError)
    assert results[1].error_code is AcknowledgeStatus.INVALID_ACK_ID


@pytest.mark.subscription(enable_exactly_once_delivery=True)
def test_the_ack_of_columns_with_exactly_once_delivery_reports_refused_ids(here: Stage) -> None:
    """The hook gets the id whose lease was over, and the statistics count it."""
    events = Events()
    received = Received(keep)
    future = here.client.subscribe_batch(
        SUBSCRIPTION, received, max_messages=3, max_latency=FOREVER, hooks=events, columns=True
    )
    here.publish(*numbers(3))
    (columns,) = received.wait_for(1)
    lost = list(columns)[1].ack_id
    here.other.modify_ack_deadline(
        subscription=SUBSCRIPTION, ack_ids=[lost], ack_deadline_seconds=0
    )
    columns.ack()
    eventually(lambda: events.refused_ids == [lost])
    assert future.statistics().failed == 1
    assert here.backlog == 1


# ---- flow control, hooks, shutdown ---------------------------------------------------------------


def test_flow_control_counts_the_messages_of_columns(here: Stage) -> None:
    """No more messages come while the window is full of unsettled ones."""
    received = Received(keep)
    future = here.client.subscribe_batch(
        SUBSCRIPTION,
        received,
        FlowControl(max_messages=10),
        max_messages=5,
        max_latency=0.01,
        columns=True,
    )
    here.publish(*numbers(30))
    eventually(lambda: future.statistics().leased == 10)
    assert future.statistics().load == 1.0
    assert sum(map(len, received.wait_for(2))) == 10
    for columns in received.wait_for(2):
        columns.ack()
    eventually(lambda: future.statistics().received == 20)
    assert here.backlog == 20


def test_hooks_get_the_messages_of_columns(here: Stage) -> None:
    """A hook that takes messages gets them, as with lists."""
    events, received = Events(), Received()
    here.client.subscribe_batch(
        SUBSCRIPTION, received, max_messages=3, max_latency=0.01, hooks=events, columns=True
    )
    here.publish(*numbers(3))
    eventually(lambda: here.backlog == 0)
    assert events.received_count == 3
    assert sorted(data for some in received.data for data in some) == numbers(3)


@pytest.mark.parametrize("mode", ["drain", "nack"])
def test_closing_returns_the_messages_of_columns_that_have_not_begun(
    here: Stage, mode: Any
) -> None:
    """Some wait for a worker, and others in an incomplete list."""
    gate = Gate()
    future = here.client.subscribe_batch(
        SUBSCRIPTION, gate, max_messages=2, max_latency=FOREVER, max_workers=1, columns=True
    )
    here.publish(*numbers(2))
    gate.wait_for(1)
    here.publish(*numbers(3))
    eventually(lambda: future.statistics().received == 5)
    closing = threading.Thread(target=future.close, args=[TIMEOUT, mode])
    closing.start()
    eventually(lambda: len(here.free()) >= 3)
    gate.open(3)
    closing.join(TIMEOUT)
    assert future.result(0) is True
    assert len(gate.columns) == 1
    assert len(here.free()) == (3 if mode == "drain" else 5)
    assert future.statistics().leased == 0


# ---- ordering keys -------------------------------------------------------------------------------


@pytest.mark.subscription(enable_message_ordering=True)
@pytest.mark.parametrize("failing", [False, True])
def test_columns_have_the_messages_of_a_key_in_order(here: Stage, failing: bool) -> None:
    """Within a list and across lists, also after nacks in the middle. Some have no key."""
    lock = threading.Lock()
    handled: dict[str, list[int]] = {key: [] for key in ("a", "b", "c", "")}
    count = 0

    def handle(columns: MessageColumns) -> None:
        nonlocal count
        with lock:
            count += 1
            fails = failing and count % 3 == 0
            failed: set[str] = set()
            mask = []
            for at, (key, data) in enumerate(zip(columns.ordering_keys, columns.data, strict=True)):
                if fails and at >= len(columns) // 2:
                    failed.add(key)
                mask.append(key in failed)
                if key not in failed:
                    handled[key].append(int(data))
        columns.nack(mask)
        columns.ack()

    for start in range(0, 60, 10):
        for key in handled:
            here.publish(*numbers(60)[start : start + 10], key=key)
    here.client.subscribe_batch(
        SUBSCRIPTION, handle, max_messages=7, max_latency=0.01, columns=True
    )
    eventually(lambda: here.backlog == 0)
    for key, order in handled.items():
        assert set(order) == set(range(60))
        if key and not failing:
            assert order == [*range(60)]
        for place, number in enumerate(order if key else []):
            assert set(order[:place]) >= set(range(number)), "something skipped ahead"


# ---- asyncio -------------------------------------------------------------------------------------


async def test_an_async_callback_may_take_columns(here: Stage) -> None:
    """It runs on the event loop of the client."""
    received: list[bytes] = []

    async def handle(columns: MessageColumns) -> None:
        await asyncio.sleep(0)
        received.extend(columns.data)
        columns.ack()

    async with AsyncSubscriberClient(endpoint=here.emulator.endpoint) as client:
        client.subscribe_batch(SUBSCRIPTION, handle, max_latency=0.01, columns=True)
        here.publish(*numbers(10))
        while here.backlog:
            await asyncio.sleep(0.01)
    assert sorted(received) == numbers(10)


def test_a_columns_argument_that_is_no_bool_is_refused(here: Stage) -> None:
    """The error names it."""
    with pytest.raises(TypeError, match="columns is 'yes'; it must be True or False"):
        here.client.subscribe_batch(SUBSCRIPTION, print, columns="yes")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="columns is 1; it must be True or False"):
        here.client.fetch(SUBSCRIPTION, columns=1)  # type: ignore[call-overload]
