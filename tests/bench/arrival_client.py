"""Measures how long one client waits while many others connect to its broker.

    python -m tests.bench.arrival_client silent localhost:PORT --clients 1000
    python -m tests.bench.arrival_client clients localhost:PORT --clients 1200

`silent` opens connections that send three bytes of HTTP/2's preface. `clients` has processes open
channels of grpcio at the same moment, each of which makes one call. Prints its figures as one JSON
object: the longest GetTopic of the client that was there before, and how long it took until the
last of the others was served.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD

from .client import Figures
from .publisher import READY, TOPIC, Broker

# Processes of clients; a process of grpcio takes about a millisecond for each new channel.
PROCESSES = 4

# Seconds: before and after the others arrive; how long a call may take.
WARM_UP = 0.5
TIMEOUT = 60.0

GET = pubsub.GetTopicRequest(topic=TOPIC)


class Bystander:
    """A client that asks for a topic again and again."""

    def __init__(self, endpoint: str) -> None:
        self._get = stub(grpc.insecure_channel(endpoint))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.waits: list[float] = []

    def start(self) -> None:
        self._get(GET, timeout=TIMEOUT)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            began = time.perf_counter()
            self._get(GET, timeout=TIMEOUT)
            self.waits.append(time.perf_counter() - began)


def stub(channel: grpc.Channel) -> Any:
    rpc = BY_METHOD["GetTopic"]
    call: Any = channel.unary_unary(
        rpc.path,
        request_serializer=rpc.request.SerializeToString,
        response_deserializer=rpc.response.FromString,
    )
    return call


def silent(arguments: argparse.Namespace) -> float:
    """Open connections that send too little, and return the seconds that it took."""
    host, _, port = arguments.endpoint.rpartition(":")
    began = time.perf_counter()
    connections = []
    for _ in range(arguments.clients):
        connection = socket.create_connection((host, int(port)), TIMEOUT)
        connection.sendall(b"PRI")
        connections.append(connection)
    took = time.perf_counter() - began
    # Time for the broker to look at the last one.
    time.sleep(WARM_UP)
    return took


def clients(arguments: argparse.Namespace) -> float:
    """Let clients arrive at once, and return the seconds until the last one was served."""
    command = [sys.executable, "-m", "tests.bench.arrival_client", "arrive", arguments.endpoint]
    command += ["--clients", str(arguments.clients // PROCESSES)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    for child in children:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
    arguments.bystander.waits.clear()
    began = time.time()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    ends = []
    for child in children:
        assert child.stdout is not None
        ends.append(float(child.stdout.readline()))
    for child in children:
        child.communicate("\n")
    return max(ends) - began


def arrive(arguments: argparse.Namespace) -> None:
    """Run one process of clients, which prints the time of its last answer."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    # Imports and threads of grpcio are there before the clock starts.
    stub(grpc.insecure_channel(arguments.endpoint, options))(GET, timeout=TIMEOUT)
    print(READY, flush=True)
    sys.stdin.readline()
    channels = [
        grpc.insecure_channel(arguments.endpoint, options) for _ in range(arguments.clients)
    ]
    calls = [stub(channel).future(GET, timeout=TIMEOUT) for channel in channels]
    for call in calls:
        call.result()
    print(time.time(), flush=True)
    sys.stdin.readline()
    os._exit(0)


def measured(mode: Callable[[argparse.Namespace], float], arguments: argparse.Namespace) -> Figures:
    bystander = arguments.bystander = Bystander(arguments.endpoint)
    bystander.start()
    time.sleep(WARM_UP)
    bystander.waits.clear()
    took = mode(arguments)
    bystander.stop()
    return {
        "longest_ms": max(bystander.waits) * 1e3,
        "p50_ms": statistics.median(bystander.waits) * 1e3,
        "served_ms": took * 1e3,
    }


MODES: dict[str, Callable[[argparse.Namespace], float]] = {"silent": silent, "clients": clients}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=[*MODES, "arrive"])
    parser.add_argument("endpoint")
    parser.add_argument("--clients", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.mode == "arrive":
        arrive(arguments)
        return
    Broker(arguments.endpoint).create_topic(pubsub.Topic(name=TOPIC))
    print(json.dumps(measured(MODES[arguments.mode], arguments)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
