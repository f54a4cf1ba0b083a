"""Requests with valid and refused ack IDs, as every documented client reads the answer.

With exactly-once delivery, no client may report an acknowledgement as done that was not taken, or
as failed that was taken. The readers below are the rules of each client, from its source.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import grpc
import pytest

from pullstream_emulator.engine.delivery.ack_ids import INVALID, TRANSIENT, UNORDERED
from pullstream_emulator.services.reply_first import ReplyFirst
from pullstream_emulator.services.subscriber import SubscriberService
from pullstream_protocol import errors
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, Broker

Result = Literal["done", "failed", "repeat"]
Kind = Literal["acknowledge", "extend", "nack"]
Reader = Callable[[list[str], grpc.StatusCode, Mapping[str, str]], dict[str, Result]]

# The statuses after which the layer for exactly-once delivery repeats the IDs without a name.
REPEATED = {
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
}


def of_code(code: str) -> Result:
    return "repeat" if code.startswith("TRANSIENT_FAILURE_") else "failed"


def python_go_and_node(
    ack_ids: list[str], status: grpc.StatusCode, named: Mapping[str, str]
) -> dict[str, Result]:
    """An ID without a name: the status decides."""
    unnamed: Result = "repeat" if status in REPEATED else "failed"
    return {i: of_code(named[i]) if i in named else unnamed for i in ack_ids}


def java(
    ack_ids: list[str], status: grpc.StatusCode, named: Mapping[str, str]
) -> dict[str, Result]:
    """An ID without a name succeeded if others have names; otherwise the status decides."""
    if not named:
        return python_go_and_node(ack_ids, status, named)
    return {i: of_code(named[i]) if i in named else "done" for i in ack_ids}


READERS = [python_go_and_node, java]


class Server:
    """A subscription with exactly-once delivery and ordering, called as by the gRPC handlers."""

    def __init__(self) -> None:
        self.broker = Broker(enable_exactly_once_delivery=True, enable_message_ordering=True)
        self._service = SubscriberService(self.broker.engine, ReplyFirst())
        self._consumer = self.broker.join(deadline=60)

    def lease(self, messages: int, keys: int = 0) -> list[str]:
        """Publish this many messages with this many keys, and lease them. Return the ack IDs."""
        for key in range(keys + 1):
            data = [str(number) for number in range(messages) if number % (keys + 1) == key]
            if data:
                self.broker.publish(*data, key=f"k{key}" if key else "")
        return [got.ack_id for got in self._consumer.take()]

    def stale(self, count: int) -> list[str]:
        """Return ack IDs whose leases have ended."""
        ack_ids = self.lease(count)
        self.call("nack", ack_ids)
        again = [got.ack_id for got in self._consumer.take()]
        assert self.call("acknowledge", again) is None
        return ack_ids

    def call(self, kind: Kind, ack_ids: Sequence[str]) -> errors.RpcError | None:
        """Return the error as a client receives it."""
        try:
            if kind == "acknowledge":
                self._service.acknowledge(
                    pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)
                )
            else:
                request = pubsub.ModifyAckDeadlineRequest(
                    subscription=SUBSCRIPTION,
                    ack_ids=ack_ids,
                    ack_deadline_seconds=600 if kind == "extend" else 0,
                )
                self._service.modify_ack_deadline(request, metadata={})
        except errors.RpcError as error:
            return errors.from_status(*errors.status_of(error))
        return None

    @property
    def leased(self) -> set[str]:
        subscription = self.broker.engine.registry.subscription(SUBSCRIPTION)
        return {delivery.ack_id for delivery in subscription.leases.values()}

    def taken(self, kind: Kind, ack_ids: Sequence[str], leased: set[str]) -> set[str]:
        """Return the IDs for which a call had an effect. `leased` are the leases before it."""
        subscription = self.broker.engine.registry.subscription(SUBSCRIPTION)
        if kind == "acknowledge":
            return {ack_id for ack_id in ack_ids if ack_id in subscription.acked_ids}
        if kind == "extend":
            end = self.broker.clock.monotonic() + 600
            return {ack_id for ack_id in ack_ids if subscription.leases.due_of(ack_id) == end}
        return leased - self.leased


def reported(server: Server, kind: Kind, ack_ids: list[str], read: Reader) -> dict[str, Result]:
    """Return what a client reports for each ID, after it has repeated what it should repeat."""
    results: dict[str, Result] = {}
    left = ack_ids
    for _ in range(20):
        error = server.call(kind, left)
        if error is None:
            return {**results, **dict.fromkeys(left, "done")}
        results |= read(left, error.grpc_status_code, error.metadata or {})
        left = [ack_id for ack_id in left if results[ack_id] == "repeat"]
        if not left:
            break
    return results


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_no_broker_error_makes_an_official_client_report_success_for_a_refused_ack_id(
    kind: Kind, read: Reader
) -> None:
    """Requests have any size and share of refused IDs. Some leases of a key are withdrawn."""
    for seed in range(60):
        chance = random.Random(seed)
        server = Server()
        ack_ids = server.lease(chance.choice([2, 10, 90, 150, 1000]), chance.choice([0, 1, 30]))
        share = chance.choice([0.02, 0.3, 0.9])
        server.call("acknowledge", ack_ids[: chance.randint(1, len(ack_ids) // 2)])
        server.call("nack", [i for i in ack_ids if i in server.leased and chance.random() < share])
        leased = server.leased
        acked = set(server.taken("acknowledge", ack_ids, leased))
        asked = [ack_id for ack_id in ack_ids if ack_id not in acked]
        asked = chance.sample(asked, chance.randint(1, len(asked)))
        results = reported(server, kind, asked, read)
        taken = server.taken(kind, asked, leased)
        done = {ack_id for ack_id, result in results.items() if result == "done"}
        failed = {ack_id for ack_id, result in results.items() if result == "failed"}
        if not (kind == "extend" and read is java):
            # Java's client believes that extensions without a name took effect. Its callback runs,
            # and the acknowledgement is refused.
            assert done <= taken, f"seed {seed}"
        assert not failed & taken, f"seed {seed}"


@pytest.mark.parametrize("kind", ["acknowledge", "extend"])
def test_the_error_of_a_small_exactly_once_request_has_a_result_for_every_requested_ack_id(
    kind: Kind,
) -> None:
    """The valid IDs are named as failures that a client repeats, and the repeat succeeds."""
    server = Server()
    stale, valid = server.stale(3), server.lease(60)
    error = server.call(kind, [*valid, *stale])
    assert isinstance(error, errors.InvalidArgument)
    assert error.metadata == {**dict.fromkeys(stale, INVALID), **dict.fromkeys(valid, TRANSIENT)}
    assert server.call(kind, valid) is None
    assert server.taken(kind, valid, set()) == set(valid)


def test_an_exactly_once_nack_request_with_a_refused_ack_id_nacks_no_message() -> None:
    """The repeat of a nack that took effect would be refused."""
    server = Server()
    stale, valid = server.stale(3), server.lease(60)
    error = server.call("nack", [*valid, *stale])
    assert isinstance(error, errors.InvalidArgument)
    assert error.metadata == {**dict.fromkeys(stale, INVALID), **dict.fromkeys(valid, TRANSIENT)}
    assert server.leased == set(valid)
    assert server.call("nack", valid) is None
    assert not server.leased


@pytest.mark.parametrize("kind", ["acknowledge", "extend"])
def test_the_error_of_a_long_exactly_once_request_names_only_the_refused_ack_ids(
    kind: Kind,
) -> None:
    """The other IDs take effect. Clients that do not count those as done repeat them."""
    server = Server()
    stale, valid = server.stale(50), server.lease(500)
    error = server.call(kind, [*valid, *stale])
    assert isinstance(error, errors.ResourceExhausted)
    assert error.metadata == dict.fromkeys(stale, INVALID)
    assert server.taken(kind, valid, set()) == set(valid)


@pytest.mark.parametrize(("kind", "refused"), [("acknowledge", 150), ("nack", 150), ("nack", 50)])
def test_a_request_with_more_refused_ack_ids_than_an_error_can_name_applies_to_no_message(
    kind: Kind, refused: int
) -> None:
    """All IDs of the request have failed."""
    server = Server()
    stale, valid = server.stale(refused), server.lease(500)
    error = server.call(kind, [*valid, *stale])
    assert isinstance(error, errors.InvalidArgument)
    assert error.message == (
        f"{refused} of the {refused + 500} acknowledgement ids in the request were invalid. An "
        "error cannot list all of them, so the request had no effect."
    )
    assert not error.metadata
    assert server.taken(kind, [*valid, *stale[:0]], set(valid)) == set()


def test_a_lease_extension_with_many_refused_ack_ids_applies_to_the_valid_ones() -> None:
    """Each repeat names further IDs. Go's client makes five attempts for a receipt."""
    server = Server()
    stale, valid = server.stale(320), server.lease(1)
    left, named = [*valid, *stale], set[str]()
    for _ in range(5):
        error = server.call("extend", left)
        if error is None:
            break
        named |= {i for i, code in (error.metadata or {}).items() if code == INVALID}
        left = [ack_id for ack_id in left if ack_id not in named]
        assert server.taken("extend", valid, set()) == set(valid)
    assert error is None
    assert named == set(stale)


def test_exactly_once_acks_of_different_ordering_keys_do_not_wait_for_each_other() -> None:
    """Each request holds the second message of one key and the first of the other."""
    server = Server()
    server.broker.publish("x1", "x2", key="x")
    server.broker.publish("y1", "y2", key="y")
    x1, x2, y1, y2 = server.lease(0)
    error = server.call("acknowledge", [x2, y1])
    assert error is not None
    assert error.metadata == {x2: UNORDERED, y1: TRANSIENT}
    assert server.call("acknowledge", [y2, x1]) is None
    assert server.call("acknowledge", [x2, y1]) is None
    assert server.broker.backlog == 0
