"""subscribe(), from a publisher to a callback and back, against a broker on loopback."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pullstream import FlowControl, Message, ThreadScheduler
from pullstream.exceptions import AcknowledgeStatus
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Gate, Log, Stage, stage
from tests.subscriber.streaming.fakes import PATIENCE, eventually


@pytest.fixture
def here() -> Iterator[Stage]:
    with stage() as here:
        yield here


@pytest.fixture
def ordered() -> Iterator[Stage]:
    with stage(enable_message_ordering=True) as here:
        yield here


def numbered(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


# ---- dispositions ------------------------------------------------------------------------------


def test_acknowledged_messages_are_gone(here: Stage) -> None:
    """Each message came once and complete, and the server has none left."""
    seen: dict[str, Message] = {}

    def handle(message: Message) -> None:
        seen[message.message_id] = message
        message.ack()

    here.client.subscribe(SUBSCRIPTION, handle)
    published = here.publish(*numbered(50))
    eventually(lambda: here.backlog == 0)
    assert sorted(seen) == sorted(published)
    assert sorted(message.data for message in seen.values()) == sorted(numbered(50))
    assert all(message.publish_time.year >= 2020 for message in seen.values())


def test_the_server_confirms_an_acknowledgement(here: Stage) -> None:
    """The futures of `ack_with_response` and similar methods have the server's answer."""
    answers: list[AcknowledgeStatus] = []

    def handle(message: Message) -> None:
        answers.append(message.modify_ack_deadline_with_response(30).result(PATIENCE))
        settle = message.nack_with_response if len(answers) == 1 else message.ack_with_response
        answers.append(settle().result(PATIENCE))

    here.client.subscribe(SUBSCRIPTION, handle)
    here.publish(b"a")
    eventually(lambda: len(answers) == 4)
    assert set(answers) == {AcknowledgeStatus.SUCCESS}
    assert here.backlog == 0


# ---- threads of callbacks ----------------------------------------------------------------------


def test_callbacks_may_run_on_an_executor_of_the_users(here: Stage) -> None:
    """The executor is passed in the official client's form."""
    together = threading.Barrier(5)

    def meet(message: Message) -> None:
        together.wait(PATIENCE)
        assert threading.current_thread().name.startswith("mine")
        message.ack()

    with ThreadPoolExecutor(5, thread_name_prefix="mine") as executor:
        scheduler = ThreadScheduler(executor)
        future = here.client.subscribe(SUBSCRIPTION, meet, scheduler=scheduler)
        here.publish(*numbered(50))
        eventually(lambda: here.backlog == 0)
        future.cancel()
        assert future.result(PATIENCE) is True


def test_subscriptions_of_one_client_share_what_there_is(here: Stage) -> None:
    """Two subscribers of the same subscription get each message once."""
    first, second = Log(), Log()
    here.client.subscribe(SUBSCRIPTION, first)
    here.client.subscribe(SUBSCRIPTION, second)
    for data in numbered(40):
        here.publish(data)
    eventually(lambda: here.backlog == 0)
    assert sorted(first.data + second.data) == sorted(numbered(40))


# ---- flow control ------------------------------------------------------------------------------


def test_unfinished_messages_keep_others_at_the_server(here: Stage) -> None:
    """The limit is max_messages, and others come as soon as some are finished."""
    gate = Gate()
    here.publish(*numbered(12))
    here.client.subscribe(SUBSCRIPTION, gate, FlowControl(max_messages=5))
    gate.wait_for(5)
    assert len(here.free()) == 7
    gate.open(12)
    eventually(lambda: here.backlog == 0)
    assert len(gate.messages) == 12


def test_a_full_window_is_not_read_beyond_although_the_server_sends(ordered: Stage) -> None:
    """With legacy flow control the server has no limit, so the reader pauses."""
    gate = Gate()
    ordered.publish(*numbered(5), key="slow")
    ordered.client.subscribe(
        SUBSCRIPTION, gate, FlowControl(max_messages=5), use_legacy_flow_control=True
    )
    gate.wait_for(1)
    ordered.publish(*numbered(7, "free-"))
    eventually(lambda: ordered.free() == [])
    assert len(gate.messages) == 1
    gate.open(12)
    eventually(lambda: ordered.backlog == 0)
    assert len(gate.messages) == 12


# ---- order -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_messages", "foreign"), [(1, False), (7, False), (1000, True)])
def test_messages_of_a_key_are_handled_in_order_in_spite_of_failures(
    ordered: Stage, max_messages: int, foreign: bool
) -> None:
    """One in five fails. No later message of its key begins before it was handled."""
    handled: dict[str, list[int]] = defaultdict(list)
    running: Counter[str] = Counter()
    wrong: list[str] = []
    calls = iter(range(10_000))

    def handle(message: Message) -> None:
        key, number = message.ordering_key, int(message.data)
        running[key] += 1
        if running[key] > 1 or number > len(set(handled[key])):
            wrong.append(f"{key}: {number} after {handled[key]}, {running[key]} at a time")
        call = next(calls)
        running[key] -= 1
        if call % 10 == 3:
            message.nack()
        elif call % 10 == 8:
            raise ValueError("bad moment")
        else:
            handled[key].append(number)
            message.ack()

    for start in range(0, 40, 10):
        for key in ("a", "b", "c"):
            ordered.publish(*numbered(40)[start : start + 10], key=key)
    with ThreadPoolExecutor(5) as executor:
        future = ordered.client.subscribe(
            SUBSCRIPTION,
            handle,
            FlowControl(max_messages=max_messages),
            scheduler=ThreadScheduler(executor) if foreign else None,
        )
        eventually(lambda: ordered.backlog == 0)
        future.cancel()
        assert future.result(PATIENCE) is True
    assert wrong == []
    assert {key: sorted(set(done)) for key, done in handled.items()} == {
        key: list(range(40)) for key in "abc"
    }
