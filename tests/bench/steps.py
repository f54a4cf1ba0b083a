"""The microseconds of each step of a message on one thread, without gRPC.

    python -m tests.bench.steps

The parts are the SDK's own. Only the server is missing, and no thread waits for another. The
additional costs of a real run are gRPC and the changes between threads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from pullstream import FlowControl, Message, Scheduler
from pullstream.lazy_messages import RawResponse
from pullstream.rpc.calls import PendingCall
from pullstream.streaming.ack_requests import AckRequest
from pullstream.streaming.dispatcher import _take_all
from pullstream.streaming.manager import StreamingPullManager
from pullstream.streaming.settings import Batching, StreamingSettings
from pullstream.streaming.stream import ReceivedResponse, Response
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .peers import Counter

STEPS = ("parse the response", "lease, count, queue", "run the callback", "settle, send the ack")
MESSAGES = 20_000
ROUNDS = 6
# Acknowledged together, as it is under load.
TOGETHER = 200


class Answered:
    """A call that has succeeded."""

    def add_done_callback(self, callback: Callable[[PendingCall], None]) -> None:
        callback(self)

    def exception(self, timeout: float | None = None) -> None:
        return None

    def cancel(self) -> None:
        pass


class NoServer:
    """Encodes requests as gRPC would, and accepts each."""

    def streaming_pull(self, first: object) -> Any:
        raise NotImplementedError("nothing is received here")

    def new_stream(self) -> NoServer:
        return self

    def close(self) -> None:
        """Do nothing, as there is no connection."""

    def reconnect(self) -> None:
        """Do nothing, as there is no connection."""

    def name_resource(self, error: object) -> None:
        """Do nothing, as there is no connection."""

    def send(self, request: AckRequest) -> Answered:
        request.call("projects/bench/subscriptions/steps", 1.0).request.SerializeToString()
        return Answered()


class Later(Scheduler):
    """Keeps scheduled work until the test runs it."""

    def __init__(self) -> None:
        self._work: deque[tuple[Callable[..., Any], Any]] = deque()

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        self._work.append((callback, args[0]))

    def schedule_many(
        self, callback: Callable[[Message], Any], messages: Sequence[Message]
    ) -> None:
        self._work.extend((callback, message) for message in messages)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        return []

    def run(self) -> None:
        while self._work:
            callback, message = self._work.popleft()
            callback(message)


def response(number: int, size: int, keys: int) -> bytes:
    made = pubsub.StreamingPullResponse()
    made.subscription_properties.message_ordering_enabled = keys > 0
    for n in range(number * size, (number + 1) * size):
        key = f"key-{n % keys}" if keys else ""
        one = pubsub.PubsubMessage(data=b"x" * 100, message_id=str(n), ordering_key=key)
        made.received_messages.add(ack_id=f"{n:0180}", message=one)
    return made.SerializeToString()


def measure(size: int, keys: int, *, columns: bool = False) -> list[float]:
    """Return the microseconds per message for each of STEPS, with this many in a response."""
    parse: Callable[[bytes], Response] = pubsub.StreamingPullResponse.FromString
    callback: Callable[[Any], None] = Message.ack
    if columns:
        parse, callback = RawResponse, Counter().many
    limits = FlowControl(max_messages=10**9, max_bytes=10**12)
    scheduler = Later()
    manager = StreamingPullManager(
        NoServer(),
        "projects/bench/subscriptions/steps",
        callback,
        StreamingSettings(
            limits=limits, batching=Batching(100, 3600.0, columns=True) if columns else None
        ),
        scheduler=scheduler,
    )
    # Not started: the work of its threads is done here, where it can be timed.
    dispatcher: Any = manager._in_flight.dispatcher
    encoded = [response(number, size, keys) for number in range(MESSAGES // size)]
    spent = [0] * len(STEPS)
    now = time.thread_time_ns
    for round_number in range(ROUNDS + 1):
        if round_number == 1:
            # The first round was the warm-up.
            spent = [0] * len(STEPS)
        for first in range(0, len(encoded), max(TOGETHER // size, 1)):
            for data in encoded[first : first + max(TOGETHER // size, 1)]:
                begin = now()
                arrival = ReceivedResponse(parse(data), len(data))
                parsed = now()
                manager.response_received(arrival)
                queued = now()
                spent[0] += parsed - begin
                spent[1] += queued - parsed
            queued = now()
            scheduler.run()
            handled = now()
            dispatcher._handle([], _take_all(dispatcher._acks))
            dispatcher._handle_portions(_take_all(dispatcher._acked_portions))
            dispatcher._send_requests()
            dispatcher._take_answers()
            spent[2] += handled - queued
            spent[3] += now() - handled
    return [nanoseconds / ROUNDS / MESSAGES / 1000 for nanoseconds in spent]


def main() -> None:
    view = Table(title="µs a message, on one thread, without gRPC")
    for column in ("messages a response", *STEPS, "sum"):
        view.add_column(column, justify="right")
    for size, keys in ((100, 0), (10, 0), (1, 0), (100, 1000)):
        micros = measure(size, keys)
        name = f"{size}, {keys:,} ordering keys" if keys else str(size)
        view.add_row(name, *(f"{one:.2f}" for one in micros), f"{sum(micros):.2f}")
    for size in (100, 10):
        micros = measure(size, 0, columns=True)
        view.add_row(f"{size}, columns", *(f"{one:.2f}" for one in micros), f"{sum(micros):.2f}")
    Console().print(view)


if __name__ == "__main__":
    main()
