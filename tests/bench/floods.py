"""What other clients of the broker notice while a stranger floods it with HTTP/2.

`python -m tests.bench.floods` starts, for each row, a server, an attacker with one or five
connections, and two victims, each in a process of its own. The victims make a unary call every 20
ms, and send a message on an open stream and wait for the answer. The table has the longest wait of
each victim, the memory of the server and the lines of its log. `--server bare` runs a grpcio server
with a method that does nothing.

The attacks: `headers` are calls with 150 header values that are not UTF-8. `resets` are calls that
are cancelled at once (CVE-2023-44487).
"""

from __future__ import annotations

import argparse
import itertools
import queue
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import IO, Any

import grpc

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator import http2

from .servers import ROOT

PROJECT = "projects/flood"
TOPIC, SUBSCRIPTION = f"{PROJECT}/topics/orders", f"{PROJECT}/subscriptions/billing"
_SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
_PUBLISHER = "/google.pubsub.v1.Publisher/"

# Pause between two calls of a victim, and the longest wait that it accepts, in seconds.
PAUSE, TIMEOUT = 0.02, 60.0

# Calls that an attacker sends at once.
CALLS_AT_ONCE = 100

HEADERS = [(b"k%d" % number, b"\xff\xfe%d" % number) for number in range(150)]


# ---- servers -------------------------------------------------------------------------------------


def serve_bare() -> None:
    """Serve a bare grpcio server, until the process is ended: every method does nothing."""

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            if details.method.endswith("StreamingPull"):
                return grpc.stream_stream_rpc_method_handler(
                    lambda requests, context: (b"" for _ in requests)
                )
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")

    server = grpc.server(futures.ThreadPoolExecutor(50))
    server.add_generic_rpc_handlers((Handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on {port}", flush=True)
    server.wait_for_termination()


# ---- the attacker --------------------------------------------------------------------------------


def attack(port: int, kind: str, seconds: float, connections: int) -> None:
    threads = [
        threading.Thread(target=_attack_once, args=(port, kind, seconds))
        for _ in range(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _attack_once(port: int, kind: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as connection:
        # Without a reader the server would stop reading.
        threading.Thread(target=_discard, args=(connection,), daemon=True).start()
        connection.sendall(http2.OPENING)
        streams = itertools.count(1, 2)
        try:
            while time.monotonic() < end:
                connection.sendall(b"".join(_calls(kind, streams)))
        except OSError:
            print("the server has closed the connection", flush=True)


def _calls(kind: str, streams: Iterator[int]) -> Iterator[bytes]:
    for stream in itertools.islice(streams, CALLS_AT_ONCE):
        if kind == "headers":
            yield http2.call(stream, *HEADERS) + http2.empty_message(stream)
        else:
            yield http2.call(stream) + http2.reset(stream)


def _discard(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass


# ---- the victims ---------------------------------------------------------------------------------


def be_victim(port: int, kind: str, seconds: float) -> None:
    """Print the longest wait in seconds, the number of calls, and of failed ones."""
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    once = _stream_victim(channel) if kind == "stream" else _unary_victim(channel)
    end = time.monotonic() + seconds
    longest, calls, failed = 0.0, 0, 0
    while time.monotonic() < end:
        begun = time.monotonic()
        try:
            once()
        except (grpc.RpcError, queue.Empty):
            failed += 1
        longest = max(longest, time.monotonic() - begun)
        calls += 1
        time.sleep(PAUSE)
    print(f"{longest:.3f} {calls} {failed}", flush=True)


def _unary_victim(channel: grpc.Channel) -> Any:
    list_topics: Any = channel.unary_unary(f"{_PUBLISHER}ListTopics")
    request = pubsub.ListTopicsRequest(project=PROJECT).SerializeToString()
    return lambda: list_topics(request, timeout=TIMEOUT)


def _stream_victim(channel: grpc.Channel) -> Any:
    """Send a ping on an open streaming pull, and wait for the answer."""
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    first = pubsub.StreamingPullRequest(
        subscription=SUBSCRIPTION, stream_ack_deadline_seconds=60, protocol_version=1
    )
    requests.put(first.SerializeToString())
    streaming_pull: Any = channel.stream_stream(f"{_SUBSCRIBER}StreamingPull")
    stream = streaming_pull(iter(requests.get, None))

    def read() -> None:
        for answer in stream:
            answers.put(answer)

    threading.Thread(target=read, daemon=True).start()

    def once() -> None:
        requests.put(b"")
        answers.get(timeout=TIMEOUT)

    return once


# ---- the measurement -----------------------------------------------------------------------------


def measure(server: str, kind: str, connections: int, seconds: float) -> str:
    command = ["-m", "pullstream_emulator", "--port", "0"]
    if server == "bare":
        command = ["-m", "tests.bench.floods", "serve-bare"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            found = re.search(r"listening on (\d+)", process.stdout.readline())
            assert found is not None
            port = int(found[1])
            _prepare(port)
            before = _lines(log)
            victims = [
                _start("victim", port, victim, seconds + 4) for victim in ("unary", "stream")
            ]
            time.sleep(1.5)
            attacker = _start("attack", port, kind, seconds, connections)
            waits = [victim.communicate()[0].split() for victim in victims]
            attacker.wait()
            memory = _peak_megabytes(process.pid)
            lines = _lines(log) - before
        finally:
            process.terminate()
            process.wait()
    shown = [f"{wait[0]:>9} s, {wait[2]} failed" for wait in waits]
    return (
        f"{server:8} {kind:8} {connections:>11}  {shown[0]}  {shown[1]}  {memory:>6} MB {lines:>6}"
    )


def _prepare(port: int) -> None:
    """Create what the stream needs. A bare server accepts it, too."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method, request in (
            (f"{_PUBLISHER}CreateTopic", pubsub.Topic(name=TOPIC)),
            (
                f"{_SUBSCRIBER}CreateSubscription",
                pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC),
            ),
        ):
            call: Any = channel.unary_unary(method)
            call(request.SerializeToString(), timeout=TIMEOUT)


def _start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.floods", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def _lines(log: IO[str]) -> int:
    log.flush()
    log.seek(0)
    return sum(1 for _ in log)


def _peak_megabytes(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        (peak,) = [line for line in status if line.startswith("VmHWM")]
    return int(peak.split()[1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.floods", description=__doc__)
    parser.add_argument("--server", choices=["ours", "bare"], action="append")
    parser.add_argument("--attack", choices=["headers", "resets"], action="append")
    parser.add_argument("--connections", type=int, action="append")
    parser.add_argument("--seconds", type=float, default=6.0)
    chosen = parser.parse_args()
    print(
        "server   attack   connections  longest unary wait    longest stream wait    memory  lines"
    )
    for server in chosen.server or ["ours", "bare"]:
        for kind in chosen.attack or ["headers", "resets"]:
            for connections in chosen.connections or [1, 5]:
                print(measure(server, kind, connections, chosen.seconds), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve-bare"]:
            serve_bare()
        case ["attack", port, kind, seconds, connections]:
            attack(int(port), kind, float(seconds), int(connections))
        case ["victim", port, kind, seconds]:
            be_victim(int(port), kind, float(seconds))
        case _:
            main()
