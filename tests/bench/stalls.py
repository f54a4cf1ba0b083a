"""Measure how long one client's large messages delay another client.

    python -m tests.bench.stalls [--seconds 3] [--case NAME ...] [--limit 1.5]

For each case one client publishes messages of about 9 MB, one after the other. Another client calls
GetTopic and Publish in turn. Each client is a separate process. The table has the longest and the
99th percentile of these calls, and the duration of a large publish. With `--limit` the script fails
if a call took longer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema
from pullstream_protocol.rpcs import BY_METHOD

PROJECT = "projects/default"
LARGE = f"{PROJECT}/topics/large"
SMALL = f"{PROJECT}/topics/small"
SCHEMA = f"{PROJECT}/schemas/large"
SIZE = 9_000_000
TIMEOUT = 120.0

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
    """The message of the busy client, and the encoding and the schema of its topic."""

    name: str
    body: Callable[[], bytes]
    encoding: schema.Encoding = schema.ENCODING_UNSPECIFIED
    definition: str = ""


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


BINARY, JSON = schema.BINARY, schema.JSON
CASES = (
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
)


def call(channel: grpc.Channel, method: str, request: Any) -> Any:
    rpc = BY_METHOD[method]
    stub = channel.unary_unary(rpc.path, rpc.request.SerializeToString, rpc.response.FromString)
    return stub(request, timeout=TIMEOUT)


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


def load(endpoint: str, name: str, seconds: float, ready: Any, spent: Any) -> None:
    """Publish large messages for some seconds, and report the duration of each request."""
    case = next(case for case in CASES if case.name == name)
    message = pubsub.PubsubMessage(data=case.body())
    request = pubsub.PublishRequest(topic=LARGE, messages=[message])
    with connect(endpoint) as channel:
        ready.wait()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            started = time.monotonic()
            call(channel, "Publish", request)
            spent.put(time.monotonic() - started)


class Waits(NamedTuple):
    """In seconds: the longest and the 99th percentile of the small calls, and each large one."""

    longest: float
    p99: float
    large: list[float]


def measure(case: Case, seconds: float) -> Waits:
    context = multiprocessing.get_context("spawn")
    with Emulator(history=0) as emulator:
        prepare(emulator.endpoint, case)
        spent: Any = context.Queue()
        waits: Any = context.Queue()
        ready = context.Barrier(2)
        arguments = (emulator.endpoint, case.name, seconds, ready, spent)
        busy = context.Process(target=load, args=arguments)
        other = context.Process(target=watch, args=(emulator.endpoint, seconds, ready, waits))
        other.start()
        busy.start()
        took = sorted(waits.get())
        busy.join(TIMEOUT)
        other.join(TIMEOUT)
        large: list[float] = []
        while not spent.empty():
            large.append(spent.get())
        assert busy.exitcode == other.exitcode == 0
    return Waits(took[-1], took[len(took) * 99 // 100], large)


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
    print(f"{'case':26}{'longest':>10}{'p99':>10}{'large publish':>16}{'count':>7}")
    failed = False
    for case in CASES:
        if options.case and case.name not in options.case:
            continue
        waits = measure(case, options.seconds)
        large = sum(waits.large) / len(waits.large) if waits.large else 0.0
        print(
            f"{case.name:26}{waits.longest * 1000:7.1f} ms{waits.p99 * 1000:7.1f} ms"
            f"{large:14.2f} s{len(waits.large):7}",
            flush=True,
        )
        failed |= options.limit is not None and waits.longest > options.limit
    sys.exit(failed)


if __name__ == "__main__":
    main()
