"""One port for gRPC and HTTP: routing of connections, and their end."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import Tls
from pullstream_emulator.net import protocol_sniffer
from pullstream_emulator.net.loading_server import LoadingServer
from pullstream_emulator.rest.server import Rest
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.broker import PROJECT, TOPIC
from tests.emulator.certificates import Identity, new_identity
from tests.emulator.program import running
from tests.emulator.rest_client import (
    V1_SUBSCRIPTION,
    V1_TOPIC,
    RestClient,
    wait_for_pulls,
    wait_until_no_stream,
)
from tests.emulator.wire import TIMEOUT, Wire
from tests.free_port import free_port
from tests.subscriber.streaming.fakes import eventually

# A broker with both protocols on one port.
pytestmark = pytest.mark.emulator(rest=True, clock=None)


def is_ok(emulator: Emulator) -> bool:
    return RestClient(emulator.endpoint).raw("GET", "/") == (
        200,
        "text/plain; charset=utf-8",
        "Ok\n",
    )


def test_the_shared_port_serves_grpc_calls_streaming_pulls_and_http_requests(
    wire: Wire, emulator: Emulator
) -> None:
    """HTTP requests run at the same time."""
    wire.create()
    stream = wire.stream()
    for round_ in range(3):
        assert is_ok(emulator)
        wire.publish(f"message {round_}")
        assert stream.data(1) == [f"message {round_}"]
    assert stream.is_quiet()
    stream.half_close()
    assert stream.end() is grpc.StatusCode.OK


def test_the_shared_port_passes_large_concurrent_messages(wire: Wire) -> None:
    """The data exceed the buffers of a connection in both directions."""
    wire.create()
    data = bytes(range(256)) * 12_000
    requests = [
        wire.start("Publish", pubsub.PublishRequest(topic=TOPIC, messages=[{"data": data}]))
        for _ in range(6)
    ]
    for request in requests:
        request.result()
    received = [wire.pull(1)[0].message.data for _ in requests]
    assert received == [data] * 6


def test_the_shared_port_serves_successive_and_simultaneous_clients(
    emulator: Emulator,
) -> None:
    """Each client has its own connection. The clients come first one by one, then all together."""
    request = pubsub.ListTopicsRequest(project=PROJECT)
    for _ in range(50):
        wire = Wire(emulator.endpoint)
        assert wire.call("ListTopics", request) == pubsub.ListTopicsResponse()
        wire.close()
    wires = [Wire(emulator.endpoint) for _ in range(50)]
    calls = [wire.start("ListTopics", request) for wire in wires]
    for call in calls:
        assert call.result() == pubsub.ListTopicsResponse()
    for wire in wires:
        wire.close()
    assert is_ok(emulator)


def test_messages_of_a_disconnected_client_go_to_the_streaming_pull_of_another_client(
    wire: Wire, emulator: Emulator
) -> None:
    """New messages go to the next stream.

    Messages of the lost stream stay leased until their ack deadline.
    """
    wire.create()
    other = Wire(emulator.endpoint)
    gone = other.stream()
    wire.publish("hello")
    assert gone.data(1) == ["hello"]
    other.close()
    wait_until_no_stream(emulator)
    wire.publish("again")
    assert wire.stream().data(1) == ["again"]


def test_stopping_the_broker_ends_streaming_pulls_and_frees_the_port(emulator: Emulator) -> None:
    """Streams end with UNAVAILABLE, so that clients reconnect.

    A waiting HTTP request is answered.
    """
    wire = Wire(emulator.endpoint)
    wire.create()
    stream = wire.stream()
    assert stream.is_quiet()
    with closing(HTTPConnection(emulator.endpoint, timeout=TIMEOUT)) as connection:
        connection.request("POST", f"{V1_SUBSCRIPTION}:pull", b'{"maxMessages": 1}')
        wait_for_pulls(emulator, 1)
        emulator.stop()
        assert connection.getresponse().status == 503
    assert stream.end() is grpc.StatusCode.UNAVAILABLE
    wire.close()
    with socket.create_server((emulator.host, emulator.port)):
        pass


@pytest.mark.parametrize(
    "said", [b"", b"P", b"PR", b"\0\0\0\0", b"PRIVATE\r\n\r\n", b"\x16\x03\x01"]
)
def test_a_connection_that_sends_random_bytes_does_not_disturb_other_clients(
    emulator: Emulator, said: bytes
) -> None:
    """The connections are silent, cut short, or speak another protocol."""
    address = (emulator.host, emulator.port)
    with socket.create_connection(address, TIMEOUT) as silent:
        silent.sendall(said)
        assert is_ok(emulator)
        silent.shutdown(socket.SHUT_WR)
        # It is closed, possibly by a reset because of unread bytes.
        with contextlib.suppress(ConnectionResetError):
            while silent.recv(4096):
                pass
        assert is_ok(emulator)


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "POST", "PROPFIND"])
def test_http_verbs_that_begin_like_the_http2_preface_are_served_as_http(
    emulator: Emulator, verb: str
) -> None:
    """The bytes may arrive byte by byte."""
    with socket.create_connection((emulator.host, emulator.port), TIMEOUT) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in f"{verb} /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode():
            slow.sendall(bytes([byte]))
        assert slow.recv(12) == b"HTTP/1.1 404"


def test_grpc_calls_and_http_requests_pass_through_the_fault_relay() -> None:
    """The relay is necessary for black holes, which block all connections."""
    with Emulator(rest=True, relay=True) as emulator, Wire(emulator.endpoint) as wire:
        wire.create()
        assert is_ok(emulator)
        with (
            emulator.faults.black_hole() as hole,
            closing(RestClient(emulator.endpoint).connect()) as http,
        ):
            http.request("GET", "/")
            hole.wait_for_hits()
            call = wire.start("GetTopic", pubsub.GetTopicRequest(topic=TOPIC))
            hole.wait_for_hits(2)
            assert not call.done()
            hole.lift()
            assert http.getresponse().status == 200
            assert call.result() == pubsub.Topic(name=TOPIC)


# ---- many connections --------------------------------------------------------------------------


def test_connections_that_send_nothing_do_not_disturb_an_existing_client() -> None:
    """A thousand connections send only `PRI`. The bench measures how long the client waits."""
    request = pubsub.ListTopicsRequest(project=PROJECT)
    with running() as (_, endpoint), contextlib.ExitStack() as stack, Wire(endpoint) as wire:
        wire.call("ListTopics", request)
        host, _, port = endpoint.rpartition(":")
        for number in range(1000):
            connection = socket.create_connection((host, int(port)), TIMEOUT)
            stack.enter_context(connection).sendall(b"PRI")
            if number % 20 == 0:
                wire.call("ListTopics", request, TIMEOUT / 2)
        wire.call("ListTopics", request, TIMEOUT / 2)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are listed in /proc")
def test_a_client_connection_uses_three_file_descriptors_and_frees_them_when_it_ends(
    emulator: Emulator,
) -> None:
    """One is for its connection, and two for the relay's connection to gRPC."""
    request = pubsub.ListTopicsRequest(project=PROJECT)
    first = Wire(emulator.endpoint)
    first.call("ListTopics", request)
    before = descriptors()
    wires = [Wire(emulator.endpoint) for _ in range(20)]
    for wire in wires:
        wire.call("ListTopics", request)
    # The clients are in this process, too.
    assert descriptors() - before >= 4 * len(wires)
    for wire in wires:
        wire.close()
    eventually(lambda: descriptors() < before + len(wires))
    first.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- connections that take too long ------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"PRI",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r",
        # gRPC itself waits for the first settings.
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST /v1/projects/p/topics/t:publish HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
        b"POST /v0/topics/t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
@pytest.mark.parametrize("port", ["shared", "of their own"])
def test_the_connection_of_a_half_sent_http_request_is_closed_after_the_receive_timeout(
    said: bytes, port: str
) -> None:
    """The timeout covers the start of a connection, the head of a request, and its body.

    It holds on every kind of port.
    """
    http_port = free_port()
    rest = Rest() if port == "shared" else Rest(port=http_port)
    with Emulator(rest=rest, receive_timeout=0.3) as emulator:
        for number in {emulator.port, emulator.port if port == "shared" else http_port}:
            with socket.create_connection((emulator.host, number), TIMEOUT) as connection:
                began = time.perf_counter()
                connection.sendall(said)
                end_of(connection)
                assert time.perf_counter() - began < TIMEOUT / 2


# A receive timeout, in seconds, within which requests arrive also on a busy machine.
BUSY = 1.0


def end_of(connection: socket.socket) -> None:
    """Wait until the other side has closed the connection. Fail after TIMEOUT."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


def test_an_idle_http_connection_is_closed_after_the_receive_timeout() -> None:
    """The connection is not closed while a request waits for its answer."""
    with (
        Emulator(rest=True, receive_timeout=BUSY) as emulator,
        closing(HTTPConnection(emulator.endpoint, timeout=TIMEOUT)) as connection,
    ):
        RestClient(emulator.endpoint).create()
        began = time.perf_counter()
        connection.request("POST", f"{V1_SUBSCRIPTION}:pull", b'{"maxMessages": 1}')
        wait_for_pulls(emulator, 1)
        eventually(lambda: time.perf_counter() > began + 2 * BUSY)
        RestClient(emulator.endpoint).ok(
            "POST", f"{V1_TOPIC}:publish", {"messages": [{"data": "aGk="}]}
        )
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        assert connection.sock is not None
        end_of(connection.sock)


def test_an_idle_grpc_channel_is_not_closed_by_the_broker() -> None:
    """An idle channel is legal for any time. Its first call may come late, too."""
    with Emulator(rest=True, receive_timeout=BUSY) as emulator, Wire(emulator.endpoint) as wire:
        request = pubsub.ListTopicsRequest(project=PROJECT)
        wire.call("ListTopics", request)
        before = connections_of(emulator)
        began = time.perf_counter()
        eventually(lambda: time.perf_counter() > began + 3 * BUSY)
        assert connections_of(emulator) == before
        wire.call("ListTopics", request)
        assert connections_of(emulator) == before


def connections_of(emulator: Emulator) -> set[str]:
    """Return the open TCP connections of the broker's port, by their addresses."""
    port = f":{emulator.port:04X}"
    lines = Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    fields = [line.split() for line in lines]
    return {" ".join(one[1:3]) for one in fields if one[1].endswith(port) and one[3] == "01"}


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_creating_an_emulator_with_a_receive_timeout_of_zero_raises_a_value_error(
    timeout: float,
) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f"receive_timeout is {timeout}; it must be above 0"):
        Emulator(receive_timeout=timeout)


# ---- addresses ---------------------------------------------------------------------------------


@pytest.fixture
def missing_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every host have an address that the machine does not have.

    `localhost` has one in a container without IPv6.
    """
    known = socket.getaddrinfo

    def found(host: str, port: int, *given: Any, **named: Any) -> list[Any]:
        other = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))
        return [other, *known(host, port, *given, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.usefixtures("missing_address")
@pytest.mark.parametrize("relay", [False, True])
def test_the_broker_listens_on_the_addresses_that_the_machine_has(relay: bool) -> None:
    with Emulator(rest=True, relay=relay) as emulator:
        assert is_ok(emulator)


@pytest.mark.usefixtures("missing_address")
def test_a_loading_broker_listens_on_the_addresses_that_the_machine_has() -> None:
    port = free_port()
    with (
        LoadingServer("127.0.0.1", port, None),
        socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection,
    ):
        connection.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 503"


# ---- malformed requests ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nA B: c\r\n\r\n",
        b"NO HTTP AT ALL\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
)
def test_a_malformed_http_request_is_logged_in_one_line(
    emulator: Emulator, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The line has the sender and the problem, without a traceback."""
    with socket.create_connection((emulator.host, emulator.port), TIMEOUT) as connection:
        connection.sendall(said)
        assert connection.recv(12).endswith(b" 400")
        end_of(connection)
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith("malformed HTTP request from 127.0.0.1: ")
    assert record.levelname == "WARNING"
    assert not record.exc_info
    assert "\n" not in line
    assert len(line) < 300


# ---- TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def identity() -> Identity:
    return new_identity("broker")


def test_the_shared_port_routes_tls_connections_by_their_alpn_protocols(
    identity: Identity, tmp_path: Path
) -> None:
    """The ALPN protocols of a client's first message decide."""
    tls = Tls(*identity.write(tmp_path))
    with Emulator(server_credentials=tls.credentials(), rest=Rest(tls=tls.context())) as emulator:
        trusted = ssl.create_default_context(cadata=identity.certificate.decode())
        RestClient(emulator.endpoint, trusted).ok("PUT", V1_TOPIC)
        trusted.set_alpn_protocols(["h2", "http/1.1"])
        assert RestClient(emulator.endpoint, trusted).ok("GET", V1_TOPIC) == {"name": TOPIC}
        credentials = grpc.ssl_channel_credentials(identity.certificate)
        with grpc.secure_channel(emulator.endpoint, credentials) as channel:
            rpc = BY_METHOD["GetTopic"]
            get: Any = channel.unary_unary(rpc.path, response_deserializer=rpc.response.FromString)
            request = pubsub.GetTopicRequest(topic=TOPIC).SerializeToString()
            assert get(request, timeout=TIMEOUT) == pubsub.Topic(name=TOPIC)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (["h2"], True),
        (["grpc-exp", "h2"], True),
        (["h2", "http/1.1"], False),
        (["http/1.1"], False),
    ],
)
def test_a_tls_client_that_offers_only_http2_is_routed_to_grpc(
    offered: list[str], expected: bool
) -> None:
    """The first TLS message has the list of protocols."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(offered)
    hello = client_hello(context)
    assert protocol_sniffer.needed(hello[:1]) == protocol_sniffer.TLS_HEAD
    assert protocol_sniffer.needed(hello[: protocol_sniffer.TLS_HEAD]) == len(hello)
    assert protocol_sniffer.is_grpc(hello) is expected


def test_a_tls_client_that_offers_no_protocol_is_routed_to_http() -> None:
    """A client whose first message is cut at any point causes no error either."""
    hello = client_hello(ssl.create_default_context())
    assert not protocol_sniffer.wants_grpc(hello)
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    hello = client_hello(context)
    assert not any(protocol_sniffer.wants_grpc(hello[:size]) for size in range(len(hello)))


def client_hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()
