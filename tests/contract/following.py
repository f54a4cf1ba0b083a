"""Test equipment for followers: records their callbacks and their calls to the broker."""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from pullstream import SubscriberClient
from pullstream.follow import (
    CaughtUp,
    Closed,
    Event,
    FellBehind,
    Follower,
    FollowState,
    Gap,
    Record,
)
from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.contract.face import TIMEOUT
from tests.subscriber.streaming.fakes import eventually

TOPIC = "projects/test-project/topics/orders"


class Wire:
    """Sits between a client and its channel.

    Records calls, and lets a test act before one begins.
    """

    def __init__(self, endpoint: str) -> None:
        self.calls: list[str] = []
        self._before: defaultdict[str, list[Callable[[], object]]] = defaultdict(list)
        self._plain = grpc.insecure_channel(endpoint)
        self.channel = grpc.intercept_channel(self._plain, _Tap(self._begin, self._begun))
        self._stream: Any = None

    @property
    def reads(self) -> list[str]:
        """The calls by which a follower gets records: Read and Watch."""
        return [method for method in self.calls if method in ("Read", "Watch")]

    def before(self, method: str, act: Callable[[], object]) -> None:
        """Call `act` before the next call of `method` begins, on its caller's thread."""
        self._before[method].append(act)

    def cut_stream(self) -> None:
        """End the newest stream as if the connection were lost."""
        self._stream.cancel()

    def close(self) -> None:
        self._plain.close()

    def _begun(self, stream: Any) -> None:
        self._stream = stream

    def _begin(self, method: str) -> None:
        self.calls.append(method)
        if self._before[method]:
            self._before[method].pop(0)()


class _Tap(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, begin: Callable[[str], None], streaming: Callable[[Any], None]) -> None:
        self._begin = begin
        self._streaming = streaming

    def intercept_unary_unary(self, call: Any, details: Any, request: Any) -> Any:
        self._begin(details.method.rpartition("/")[2])
        return call(details, request)

    def intercept_unary_stream(self, call: Any, details: Any, request: Any) -> Any:
        stream = self.intercept_unary_unary(call, details, request)
        self._streaming(stream)
        return stream


class Diary:
    """The callbacks of a follower, in order.

    The follower's thread writes; a test waits and reads.
    """

    def __init__(self) -> None:
        self.entries: list[Record | Event] = []
        self._changed = threading.Condition()

    def handle(self, record: Record) -> None:
        self._add(record)

    def tell(self, event: Event) -> None:
        self._add(event)

    def _add(self, entry: Record | Event) -> None:
        with self._changed:
            self.entries.append(entry)
            self._changed.notify_all()

    @property
    def seqs(self) -> list[int]:
        return [entry.seq for entry in self.entries if isinstance(entry, Record)]

    @property
    def events(self) -> list[Event]:
        return [entry for entry in self.entries if not isinstance(entry, Record)]

    @property
    def turns(self) -> list[str]:
        """Return the names of the CaughtUp and FellBehind events."""
        return [type(e).__name__ for e in self.events if isinstance(e, (CaughtUp, FellBehind))]

    @property
    def gaps(self) -> list[Gap]:
        return [event for event in self.events if isinstance(event, Gap)]

    @property
    def closed(self) -> Closed:
        (closed,) = (event for event in self.events if isinstance(event, Closed))
        return closed

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, which looks at this diary, is true."""
        deadline = SYSTEM_CLOCK.monotonic() + TIMEOUT
        with self._changed:
            while not condition():
                left = deadline - SYSTEM_CLOCK.monotonic()
                assert left > 0, f"it has not happened: {self.seqs[-5:]}, {self.events}"
                self._changed.wait(left)

    def wait_for_turn(self, count: int) -> None:
        """Wait until the follower has reported CaughtUp or FellBehind this many times."""
        self.wait_for(lambda: len(self.turns) >= count)


class Followed:
    """A topic of a broker, and a client that follows it."""

    def __init__(self, emulator: Emulator, topic: str = TOPIC) -> None:
        self.emulator = emulator
        self.topic = topic
        self.wire = Wire(emulator.endpoint)
        self.client = SubscriberClient(channel=self.wire.channel)
        self.diary = Diary()

    def append(self, count: int = 1, **attributes: str) -> None:
        records = [{"data": b"x", "attributes": attributes} for _ in range(count)]
        self.client.feeds.append(self.topic, records, create=True)

    def follow(self, after: Any = 0, **options: Any) -> Follower:
        """Start a follower with a new diary."""
        self.diary = diary = Diary()
        options = {"handler": diary.handle, "on_event": diary.tell, **options}
        return self.client.follow(self.topic, after=after, **options)

    def overtake(self, follower: Follower, head_seq: int) -> None:
        """Append records up to this number, each after the stream has brought the previous one."""
        while (seq := follower.statistics().head_seq) < head_seq:
            self.append()
            eventually(partial(_has_come, follower, seq + 1))

    def delete(self) -> None:
        """Delete the topic."""
        self.emulator.inspect(lambda engine: engine.delete_topic(self.topic))

    def live(self, after: Any = 0, **options: Any) -> Follower:
        """Start a follower, and return when it is live on its stream."""
        follower = self.follow(after, **options)
        self.diary.wait_for_turn(1)
        until_live(follower)
        return follower

    def close(self) -> None:
        self.client.close(TIMEOUT)
        self.wire.close()


def _has_come(follower: Follower, seq: int) -> bool:
    return follower.statistics().head_seq == seq


class Held:
    """A handler that blocks while its gate is shut."""

    def __init__(self, here: Followed, *, open: bool = False) -> None:
        self._here = here
        self.gate = threading.Event()
        if open:
            self.gate.set()

    def __call__(self, record: Record) -> None:
        self._here.diary.handle(record)
        self.gate.wait(TIMEOUT)


def until_live(follower: Follower) -> None:
    eventually(lambda: follower.state is FollowState.LIVE)


@contextmanager
def followed(emulator: Emulator, topic: str = TOPIC) -> Iterator[Followed]:
    here = Followed(emulator, topic)
    try:
        yield here
    finally:
        here.close()


def kept_in(path: Path) -> dict[str, int]:
    """Return the positions in a checkpoint file, by name."""
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, seq FROM checkpoints ORDER BY name"))
