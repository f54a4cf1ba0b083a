"""Measure how long one client's large requests delay another client.

    python -m tests.bench.stalls [--seconds 3] [--case NAME ...] [--limit 0.1]

For each case one client sends requests of about 9 MB to a broker, one after the other. Another
client calls GetTopic and Publish in turn over gRPC. Each client is a separate process. The table
has the longest and the 99th percentile of these calls, the longest step of the broker's event loop
in CPU time, and the duration of a large request. With `--limit` the script fails if a call took
longer.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc

from pullstream_emulator import Emulator
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.loop_steps import measured_steps

PROJECT = "projects/default"
LARGE = f"{PROJECT}/topics/large"
SMALL = f"{PROJECT}/topics/small"
SCHEMA = f"{PROJECT}/schemas/large"
SIZE = 9_000_000
RECORDS = 200_000
PATIENCE = 120.0

INTS = json.dumps({"type": "array", "items": "int"})
STATES = json.dumps(
    {
        "type": "array",
        "items": {
            "type": "record",
            "name": "State",
            "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
        },
    }
)
MAP = json.dumps({"type": "map", "values": "int"})
PROTO = """syntax = "proto3";
message M {
  repeated int32 i = 1; repeated M m = 2; repeated string s = 3; map<string, int32> k = 4;
  message E {} repeated E e = 6;
}"""


class Case(NamedTuple):
    """The requests of the busy client. `schema` and `encoding` are its topic's."""

    name: str
    body: Callable[[], bytes]
    encoding: schema.Encoding = schema.ENCODING_UNSPECIFIED
    definition: str = ""
    kind: str = "Publish"


def varint(number: int) -> bytes:
    octets = bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def block(count: int, items: bytes) -> bytes:
    """Return an array or map in Avro's binary encoding."""
    return varint(2 * count) + items + b"\0"


def nested() -> bytes:
    message = b""
    for _ in range(90):
        message = b"\x12" + varint(len(message)) + message
    return message * (SIZE // len(message))


def keys() -> bytes:
    return b",".join(b'"k%07d":1' % number for number in range(SIZE // 13))


def rest_messages(count: int, size: int) -> bytes:
    data = base64.b64encode(b"x" * size).decode()
    attributes = {f"k{number}": "v" for number in range(20)}
    return json.dumps({"messages": [{"data": data, "attributes": attributes}] * count}).encode()


BINARY, JSON = schema.BINARY, schema.JSON
CASES = (
    Case("nothing", lambda: b"", kind="nothing"),
    Case("no schema", lambda: b"x" * SIZE),
    Case("Avro: ints", lambda: block(SIZE, b"\2" * SIZE), BINARY, INTS),
    Case("Avro: records", lambda: block(SIZE // 3, b"\2\2x" * (SIZE // 3)), BINARY, STATES),
    Case("Avro: map", lambda: block(SIZE // 3, b"\2x\2" * (SIZE // 3)), BINARY, MAP),
    Case("Avro: string", lambda: varint(2 * SIZE) + b"x" * SIZE, BINARY, '"string"'),
    Case("Avro: 5,000 ints", lambda: block(5000, b"\2" * 5000), BINARY, INTS),
    Case("Avro JSON: ints", lambda: b"[" + b"1," * (SIZE // 2) + b"1]", JSON, INTS),
    Case("Avro JSON: map", lambda: b"{" + keys() + b"}", JSON, MAP),
    Case("Protobuf: empty messages", lambda: b"\x32\0" * (SIZE // 2), BINARY, PROTO),
    Case("Protobuf: nested", nested, BINARY, PROTO),
    Case("Protobuf: strings", lambda: b"\x1a\1x" * (SIZE // 3), BINARY, PROTO),
    Case("Protobuf JSON: ints", lambda: b'{"i":[' + b"1," * (SIZE // 2) + b"1]}", JSON, PROTO),
    Case(
        "Protobuf JSON: messages", lambda: b'{"e":[' + b"{}," * (SIZE // 3) + b"{}]}", JSON, PROTO
    ),
    Case("Protobuf JSON: map", lambda: b'{"k":{' + keys() + b"}}", JSON, PROTO),
    Case("REST: one message", lambda: rest_messages(1, 6_700_000), kind="REST"),
    Case("REST: 1,000 messages", lambda: rest_messages(1000, 6000), kind="REST"),
    Case("REST: pull of 9 MB", lambda: b"x" * SIZE, kind="REST pull"),
    Case("feed: delete by filter", lambda: b"", kind="delete"),
    Case("feed: filtered read", lambda: b"", kind="read"),
)


def call(channel: grpc.Channel, method: str, request: Any) -> Any:
    rpc = BY_METHOD[method]
    stub = channel.unary_unary(rpc.path, rpc.request.SerializeToString, rpc.response.FromString)
    return stub(request, timeout=PATIENCE)


def connect(endpoint: str) -> grpc.Channel:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return grpc.insecure_channel(endpoint, options)


def prepare(endpoint: str, case: Case) -> None:
    with connect(endpoint) as channel:
        topic = pubsub.Topic(name=LARGE)
        if case.definition:
            is_proto = case.definition is PROTO
            kind = schema.Schema.PROTOCOL_BUFFER if is_proto else schema.Schema.AVRO
            made = schema.Schema(type=kind, definition=case.definition)
            request = schema.CreateSchemaRequest(parent=PROJECT, schema=made, schema_id="large")
            call(channel, "CreateSchema", request)
            topic.schema_settings.schema = SCHEMA
            topic.schema_settings.encoding = case.encoding
        call(channel, "CreateTopic", topic)
        call(channel, "CreateTopic", pubsub.Topic(name=SMALL))
        if case.kind in ("delete", "read"):
            for _ in range(RECORDS // 5000):
                append(channel, [{"tag": "a"}, {"tag": "b"}] * 2500)
        if case.kind == "REST pull":
            name = f"{PROJECT}/subscriptions/large"
            call(channel, "CreateSubscription", pubsub.Subscription(name=name, topic=LARGE))


def append(channel: grpc.Channel, attributes: list[dict[str, str]]) -> None:
    messages = [pubsub.PubsubMessage(data=b"x", attributes=each) for each in attributes]
    call(channel, "Append", feeds.AppendRequest(topic=LARGE, messages=messages))


def load(endpoint: str, name: str, seconds: float, ready: Any, spent: Any) -> None:
    """Send the busy client's requests for some seconds, and report the duration of each."""
    case = next(case for case in CASES if case.name == name)
    body = case.body()
    with connect(endpoint) as channel:
        ready.wait()
        until = time.monotonic() + seconds
        for make in requests(endpoint, channel, case, body):
            if time.monotonic() > until:
                return
            started = time.monotonic()
            make()
            spent.put(time.monotonic() - started)


def requests(
    endpoint: str, channel: grpc.Channel, case: Case, body: bytes
) -> Iterator[Callable[[], object]]:
    data = pubsub.PublishRequest(topic=LARGE, messages=[pubsub.PubsubMessage(data=body)])

    def post(path: str, content: bytes) -> None:
        connection = http.client.HTTPConnection(endpoint, timeout=PATIENCE)
        connection.request("POST", f"/v1/{path}", content)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()[:500]
        answer.read()
        connection.close()

    def pull() -> None:
        call(channel, "Publish", data)
        post(f"{PROJECT}/subscriptions/large:pull", b'{"maxMessages": 1}')

    def delete() -> None:
        request = feeds.DeleteMessagesRequest(topic=LARGE, filter='attributes.tag = "b"')
        call(channel, "DeleteMessages", request)
        append(channel, [{"tag": "b"}] * 5000)

    def read() -> None:
        start = feeds.Position(filter='attributes.tag = "none"')
        call(channel, "Read", feeds.ReadRequest(topic=LARGE, start=start))

    kinds: dict[str, Callable[[], object]] = {
        "nothing": lambda: time.sleep(0.1),
        "Publish": lambda: call(channel, "Publish", data),
        "REST": lambda: post(f"{LARGE}:publish", body),
        "REST pull": pull,
        "delete": delete,
        "read": read,
    }
    while True:
        yield kinds[case.kind]


class Waits(NamedTuple):
    """In seconds: the longest and the 99th percentile of the small calls, and each large request.

    Attributes:
        step: CPU seconds of the longest step of the broker's event loop. The other figures also
            include the machine's other work.
    """

    longest: float
    p99: float
    large: list[float]
    step: float


def measure(case: Case, seconds: float) -> Waits:
    context = multiprocessing.get_context("spawn")
    with Emulator(rest=True, history=0) as emulator:
        prepare(emulator.endpoint, case)
        spent: Any = context.Queue()
        waits: Any = context.Queue()
        ready = context.Barrier(2)
        arguments = (emulator.endpoint, case.name, seconds, ready, spent)
        busy = context.Process(target=load, args=arguments)
        other = context.Process(target=watch, args=(emulator.endpoint, seconds, ready, waits))
        with measured_steps() as steps:
            other.start()
            busy.start()
            took = sorted(waits.get())
        large: list[float] = []
        busy.join(PATIENCE)
        other.join(PATIENCE)
        while not spent.empty():
            large.append(spent.get())
        assert busy.exitcode == other.exitcode == 0
    return Waits(took[-1], took[len(took) * 99 // 100], large, steps.longest)


def watch(endpoint: str, seconds: float, ready: Any, waits: Any) -> None:
    """Run the other client, and report the duration of each of its calls."""
    took: list[float] = []
    message = pubsub.PubsubMessage(data=b"x")
    with connect(endpoint) as channel:
        call(channel, "GetTopic", pubsub.GetTopicRequest(topic=SMALL))
        ready.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for method, request in (
                ("GetTopic", pubsub.GetTopicRequest(topic=SMALL)),
                ("Publish", pubsub.PublishRequest(topic=SMALL, messages=[message])),
            ):
                started = time.monotonic()
                call(channel, method, request)
                took.append(time.monotonic() - started)
            time.sleep(0.002)
    waits.put(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--limit", type=float, help="longest wait that is allowed, in seconds")
    options = parser.parse_args()
    print(f"{'case':26}{'longest':>10}{'p99':>10}{'step':>10}{'large request':>16}{'count':>7}")
    failed = False
    for case in CASES:
        if options.case and case.name not in options.case:
            continue
        waits = measure(case, options.seconds)
        large = sum(waits.large) / len(waits.large) if waits.large else 0.0
        print(
            f"{case.name:26}{waits.longest * 1000:7.1f} ms{waits.p99 * 1000:7.1f} ms"
            f"{waits.step * 1000:7.1f} ms"
            f"{large:14.2f} s{len(waits.large):7}",
            flush=True,
        )
        failed |= options.limit is not None and waits.longest > options.limit
    sys.exit(failed)


if __name__ == "__main__":
    main()
