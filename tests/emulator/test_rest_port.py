"""One port for gRPC and HTTP: who gets a connection, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import pytest

from emulator import Emulator
from emulator.access import Tls
from emulator.rest import handover, sniff
from emulator.rest.server import Rest
from protocol.messages import pubsub_pb2 as pubsub
from protocol.rpcs import BY_METHOD
from tests.emulator.broker import PROJECT, TOPIC
from tests.emulator.certificates import Identity, new_identity
from tests.emulator.rest_client import V1_SUBSCRIPTION, V1_TOPIC, RestClient, wait_for_pulls
from tests.emulator.wire import PATIENCE, Wire


async def no_hand_over(address: str) -> bool:
    return False


@pytest.fixture(params=["handed over", "relayed"])
def emulator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """A broker with both on one port. gRPC has its connections itself, or through a relay."""
    if request.param == "relayed":
        monkeypatch.setattr(handover, "works", no_hand_over)
    with Emulator(rest=True) as emulator:
        yield emulator


def is_ok(emulator: Emulator) -> bool:
    return RestClient(emulator.endpoint).raw("GET", "/") == (
        200,
        "text/plain; charset=utf-8",
        "Ok\n",
    )


def test_calls_and_streams_go_through(wire: Wire, emulator: Emulator) -> None:
    """Beside HTTP requests."""
    wire.create()
    stream = wire.stream()
    for round_ in range(3):
        assert is_ok(emulator)
        wire.publish(f"message {round_}")
        assert stream.data(1) == [f"message {round_}"]
    assert stream.is_quiet()
    stream.half_close()
    assert stream.end() is grpc.StatusCode.OK


def test_much_goes_through_at_once(wire: Wire) -> None:
    """More than a connection holds on its way, in both directions."""
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


def test_many_clients_come_and_go(emulator: Emulator) -> None:
    """Each on a connection of its own, and then all at the same time."""
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


def test_a_client_that_leaves_is_noticed(wire: Wire, emulator: Emulator) -> None:
    """The messages of its stream go to the next one."""
    wire.create()
    other = Wire(emulator.endpoint)
    gone = other.stream()
    wire.publish("hello")
    assert gone.data(1) == ["hello"]
    other.close()
    assert wire.stream().data(1) == ["hello"]


def test_when_the_broker_stops_streams_end_and_the_port_is_free(emulator: Emulator) -> None:
    """UNAVAILABLE, so that clients come back; a waiting HTTP request is answered."""
    wire = Wire(emulator.endpoint)
    wire.create()
    stream = wire.stream()
    assert stream.is_quiet()
    with closing(HTTPConnection(emulator.endpoint, timeout=PATIENCE)) as connection:
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
def test_a_connection_that_makes_no_sense_disturbs_nobody(emulator: Emulator, said: bytes) -> None:
    """Silent, cut short, or in another language."""
    address = (emulator.host, emulator.port)
    with socket.create_connection(address, PATIENCE) as silent:
        silent.sendall(said)
        assert is_ok(emulator)
        silent.shutdown(socket.SHUT_WR)
        # It is closed, be it because of what was said and never read.
        with contextlib.suppress(ConnectionResetError):
            while silent.recv(4096):
                pass
        assert is_ok(emulator)


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "POST", "PROPFIND"])
def test_verbs_that_begin_like_the_preface_are_http(emulator: Emulator, verb: str) -> None:
    """Also when they come byte by byte."""
    with socket.create_connection((emulator.host, emulator.port), PATIENCE) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in f"{verb} /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode():
            slow.sendall(bytes([byte]))
        assert slow.recv(12) == b"HTTP/1.1 404"


@pytest.mark.skipif(sys.platform != "linux", reason="connections are handed over on Linux alone")
@pytest.mark.parametrize("works", [True, False])
def test_a_connection_that_is_handed_over_has_nobody_between(
    monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """Where it did not work here, the tests above would say nothing of it."""
    address = handover.new_address()
    monkeypatch.setattr(handover, "new_address", lambda: address)
    if not works:
        monkeypatch.setattr(handover, "works", no_hand_over)
    with Emulator(rest=True) as emulator:
        wire = Wire(emulator.endpoint)
        wire.call("ListTopics", pubsub.ListTopicsRequest(project=PROJECT))
        # Of gRPC's own address: where it listens, and a relay's connection to it.
        assert sockets_at(address) == (1 if works else 2)
        wire.close()


def sockets_at(address: str) -> int:
    name = address.replace("unix-abstract:", "@")
    return Path("/proc/net/unix").read_text(encoding="utf-8").split().count(name)


def test_both_go_through_the_relay_of_faults() -> None:
    """Which a black hole needs: nobody comes through one."""
    with Emulator(rest=True, relay=True) as emulator:
        wire = Wire(emulator.endpoint)
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
        wire.close()


def test_a_connection_that_grpc_will_not_have_is_relayed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says so."""

    async def refuse(client: socket.socket, address: str) -> None:
        raise handover.CannotHandOver("it is another gRPC")

    with Emulator(rest=True) as emulator:
        monkeypatch.setattr(handover, "hand_over", refuse)
        wire = Wire(emulator.endpoint)
        request = pubsub.ListTopicsRequest(project=PROJECT)
        assert wire.call("ListTopics", request) == pubsub.ListTopicsResponse()
        wire.close()
    if sys.platform == "linux":
        assert "a gRPC connection is relayed: it is another gRPC" in caplog.text


@pytest.mark.parametrize("greeting", [None, b"", b"hello"])
def test_a_hand_over_is_tried_before_it_is_relied_upon(
    monkeypatch: pytest.MonkeyPatch, greeting: bytes | None
) -> None:
    """With whoever is silent, hangs up, or does not wait by epoll it does not work."""
    monkeypatch.setattr(handover, "PATIENCE", 0.05)
    address = handover.new_address()
    assert asyncio.run(handover.works(address)) is False
    if sys.platform != "linux":
        return
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address.replace("unix-abstract:", "\0"))
        listening.listen()
        answering = threading.Thread(target=answer_once, args=(listening, greeting))
        answering.start()
        assert asyncio.run(handover.works(address)) is False
        answering.join(PATIENCE)


def answer_once(listening: socket.socket, greeting: bytes | None) -> None:
    connection, _ = listening.accept()
    with connection:
        if greeting is not None:
            connection.sendall(greeting)
        if greeting != b"":
            # Until the other end hangs up.
            connection.recv(1)


# ---- TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def identity() -> Identity:
    return new_identity("broker")


def test_tls_is_told_apart_as_well(identity: Identity, tmp_path: Path) -> None:
    """By the protocols that a client offers when it begins."""
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
            assert get(request, timeout=PATIENCE) == pubsub.Topic(name=TOPIC)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (["h2"], True),
        (["grpc-exp", "h2"], True),
        (["h2", "http/1.1"], False),
        (["http/1.1"], False),
    ],
)
def test_a_client_that_offers_http2_alone_is_grpcs(offered: list[str], expected: bool) -> None:
    """The first message of TLS has the list."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(offered)
    hello = client_hello(context)
    assert sniff.is_tls(hello)
    assert sniff.tls_size(hello) == len(hello)
    assert sniff.wants_grpc(hello) is expected


def test_a_client_that_offers_nothing_is_https() -> None:
    """Nor does one whose first message is cut anywhere make trouble."""
    hello = client_hello(ssl.create_default_context())
    assert not sniff.wants_grpc(hello)
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    hello = client_hello(context)
    assert not any(sniff.wants_grpc(hello[:size]) for size in range(len(hello)))


def client_hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()
