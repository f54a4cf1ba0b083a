"""Black holes: a broker that hangs, and a network that is dead."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine import Consumer, Engine
from pullstream_emulator.faults import Faults
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.rest_client import wait_for_pulls, wait_until_no_stream
from tests.emulator.wire import TIMEOUT, Wire, data_of, wait_until_idle

GET_TOPIC = pubsub.GetTopicRequest(topic=TOPIC)
PULL = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=10)


# ---- a broker that hangs -------------------------------------------------------------------------


def test_a_black_hole_fault_holds_all_answers_of_the_broker_until_the_fault_is_lifted(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """Open streams, waiting pulls and new calls get no answer.

    After the lift each gets its answer.
    """
    stream = wire.stream()
    wait_until_idle(stream)
    pull = wire.start("Pull", PULL)
    wait_for_pulls(emulator, 1)
    fault = faults.black_hole()
    messages = [pubsub.PubsubMessage(data=data) for data in (b"a", b"b")]
    request = pubsub.PublishRequest(topic=TOPIC, messages=messages)
    emulator.inspect(lambda engine: engine.publish(request))
    call = wire.start("GetTopic", GET_TOPIC)
    new = wire.stream()
    fault.wait_for_hits(4)
    assert not call.done()
    assert not pull.done()
    assert stream.call.is_active()
    fault.lift()
    assert call.result().name == TOPIC
    received = data_of(pull.result().received_messages) + stream.data(1)
    assert sorted(received) == ["a", "b"]
    wait_until_idle(new)


def test_a_call_under_a_black_hole_fault_ends_with_deadline_exceeded_and_has_no_effect(
    faults: Faults, wire: Wire, emulator: Emulator
) -> None:
    """The call is not carried out."""
    with faults.black_hole():
        request = pubsub.DeleteTopicRequest(topic=TOPIC)
        call = wire.start("DeleteTopic", request, timeout=0.3)
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert emulator.inspect(lambda engine: engine.get_topic(TOPIC)).name == TOPIC


# ---- a dead network ------------------------------------------------------------------------------


HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Length, type, flags and stream of a frame, without payload.
EMPTY_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
PING = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"how goes"
PONG = bytes([0, 0, 8, 6, 1, 0, 0, 0, 0]) + b"how goes"


def read_until(connection: socket.socket, frame: bytes) -> None:
    received = b""
    while frame not in received:
        data = connection.recv(4096)
        assert data, "the connection has ended"
        received += data


def free_messages(engine: Engine) -> int:
    """Return the number of messages that another client could receive at this moment."""
    consumer = Consumer(ack_deadline=10, wake=lambda: None)
    subscription = engine.join(SUBSCRIPTION, consumer)
    taken = engine.take(subscription, consumer)
    engine.leave(subscription, consumer)
    return len(taken)


@pytest.fixture
def relayed(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock, relay=True) as emulator:
        yield emulator


@pytest.fixture
def far(relayed: Emulator) -> Iterator[Wire]:
    """Yield a client of the broker behind the relay."""
    wire = Wire(relayed.endpoint)
    wire.create()
    yield wire
    wire.close()


def test_the_fault_relay_passes_all_bytes_in_both_directions(
    relayed: Emulator, far: Wire, clock: ManualClock
) -> None:
    """The relay passes more than it reads at a time, in both directions."""
    far.publish("x" * 1_000_000)
    stream = far.stream(stream_ack_deadline_seconds=600)
    assert stream.data(1) == ["x" * 1_000_000]
    far.close()
    wait_until_no_stream(relayed)
    clock.advance(600)
    again = Wire(relayed.endpoint)
    assert [len(data) for data in data_of(again.pull())] == [1_000_000]
    again.close()


def test_the_dead_network_fault_blocks_requests_and_answers(relayed: Emulator, far: Wire) -> None:
    """The fault affects open streams, calls and new connections.

    After the lift the data arrive late.
    """
    stream = far.stream()
    wait_until_idle(stream)
    fault = relayed.faults.black_hole()
    other = Wire(relayed.endpoint)
    calls = [
        wire.start("DeleteTopic", pubsub.DeleteTopicRequest(topic=name), timeout=TIMEOUT)
        for wire, name in ((far, TOPIC), (other, f"{TOPIC}-missing"))
    ]
    fault.wait_for_hits(2)
    assert relayed.inspect(lambda engine: engine.get_topic(TOPIC)).name == TOPIC
    assert not any(call.done() for call in calls)
    fault.lift()
    assert [call.code() for call in calls] == [grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND]
    wait_until_idle(stream)
    other.close()


def test_under_the_dead_network_fault_the_broker_keeps_its_connections_and_leases(
    relayed: Emulator, clock: ManualClock
) -> None:
    """The broker keeps a dead client. The messages that were sent to it stay leased."""
    gone = Wire(relayed.endpoint)
    gone.create()
    stream = gone.stream(stream_ack_deadline_seconds=10)
    gone.publish("a")
    assert stream.data(1) == ["a"]
    fault = relayed.faults.black_hole()
    gone.close()
    fault.wait_for_hits()
    assert relayed.inspect(free_messages) == 0
    fault.lift()
    # Otherwise the dead stream, which is still there, would get the message again.
    wait_until_no_stream(relayed)
    clock.advance(10)
    back = Wire(relayed.endpoint)
    assert data_of(back.pull()) == ["a"]
    back.close()


def test_http2_pings_get_no_answer_under_the_dead_network_fault(relayed: Emulator) -> None:
    """The HTTP/2 layer of a broker that merely hangs would answer them."""
    with socket.create_connection(("127.0.0.1", relayed.port), TIMEOUT) as connection:
        connection.sendall(HTTP2_PREFACE + EMPTY_SETTINGS + PING)
        read_until(connection, PONG)
        with relayed.faults.black_hole() as fault:
            connection.sendall(PING)
            fault.wait_for_hits()
            # Other frames may still be readable.
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                assert PONG not in connection.recv(4096)
            connection.settimeout(TIMEOUT)
        read_until(connection, PONG)


def test_the_fault_relay_closes_both_sides_when_one_side_closes_the_connection(
    relayed: Emulator,
) -> None:
    """The end passes in both directions."""
    with socket.create_connection(("127.0.0.1", relayed.port), TIMEOUT) as connection:
        connection.sendall(HTTP2_PREFACE + EMPTY_SETTINGS)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


def test_the_dead_network_fault_holds_back_the_close_of_a_connection(relayed: Emulator) -> None:
    """The end is held back like any byte."""
    with socket.create_connection(("127.0.0.1", relayed.port), TIMEOUT) as connection:
        connection.sendall(HTTP2_PREFACE + EMPTY_SETTINGS + PING)
        read_until(connection, PONG)
        with relayed.faults.black_hole() as fault:
            connection.shutdown(socket.SHUT_WR)
            fault.wait_for_hits()


def test_a_broker_under_the_dead_network_fault_can_be_stopped(clock: ManualClock) -> None:
    """The broker frees its port, and the client's connection ends."""
    with Emulator(clock=clock, relay=True) as emulator:
        wire = Wire(emulator.endpoint)
        wire.create()
        stream = wire.stream()
        wait_until_idle(stream)
        emulator.faults.black_hole()
    assert stream.end() is grpc.StatusCode.UNAVAILABLE
    wire.close()
    with Emulator(port=emulator.port):
        pass


def test_starting_an_emulator_with_a_fault_relay_on_a_used_port_raises_an_os_error(
    relayed: Emulator,
) -> None:
    """The error is the same as for a broker's port."""
    with pytest.raises(OSError, match="in use"):
        Emulator(port=relayed.port, relay=True).start()
