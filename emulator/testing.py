"""The broker inside another process: `with Emulator() as emulator: ...`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio

from protocol.clock import Clock
from protocol.messages import pubsub_pb2 as pubsub

from .access import Access
from .broker import PROFILES, Broker
from .config import ConfigSource, Seeds, load
from .engine import Engine
from .faults import Faults
from .history import DEFAULT_LIMIT, MessageHistory
from .loop_thread import LoopThread
from .rest.server import Rest
from .server import MAX_PORT, Server
from .storage.opening import open_storage

T = TypeVar("T")


class Emulator:
    """A broker on loopback, for as long as the `with` block lasts.

        with Emulator() as emulator:
            client = SubscriberClient(endpoint=emulator.endpoint)

    Args:
        clock: what the broker takes for time: real time by default, or a `ManualClock`. Either is
            moved by `emulator.clock.advance(seconds)`, which returns after the broker has acted on
            it.
        host, port: where to listen; port 0 picks a free one, kept in `port`.
        engine: the state to serve. Hand `other.engine` on to start again where another one stopped,
            with its clock and history.
        server_credentials: serve TLS with these instead of plaintext.
        interceptors: grpc.aio server interceptors, called for every RPC.
        relay: let connections come through a relay, slower, so that `faults.black_hole()` can
            swallow their bytes.
        config: topics, subscriptions and so on to start with: a file, or what one would hold.
        profile: "production" for its limits, "emulator" for ack deadlines from 1 s.
        max_bytes: of all messages that are kept; a publish that would exceed it is refused.
        history: how many events `history` keeps; 0 for none.
        data_dir: keep everything in this directory, and begin with what it has: docs/durability.md.
        durability: class of the topics that name none: "memory", "disk" (with `data_dir` the
            default) or "fsync".
        fault_seed: of the dice that faults with a probability throw.
        access: tokens that callers must show, docs/security.md.
        rest: serve HTTP/JSON on the same port too, docs/rest.md.

    `faults` makes the broker misbehave: docs/faults.md. `history` tells what happened in it:
    docs/testing.md. Topics and subscriptions are named in full.

    Thread-safe. `start` and `stop` may be called by hand instead of `with`; both are idempotent.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        engine: Engine | None = None,
        server_credentials: grpc.ServerCredentials | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        relay: bool = False,
        access: Access | None = None,
        rest: bool | Rest = False,
        config: ConfigSource | None = None,
        profile: str = PROFILES[0],
        max_bytes: int | None = None,
        history: int = DEFAULT_LIMIT,
        fault_seed: int = 0,
        data_dir: str | Path | None = None,
        durability: str | None = None,
    ) -> None:
        def new_broker(clock: Clock | None) -> Broker:
            storage = open_storage(data_dir, durability)
            return Broker(
                clock,
                engine=engine,
                history=history,
                profile=profile,
                max_bytes=max_bytes,
                storage=storage,
            )

        if not 0 <= port <= MAX_PORT:
            raise ValueError(f"port is {port}; it must be between 0 (a free one) and {MAX_PORT}")
        self._new_broker = new_broker
        known = None if engine is None else Broker.holding(engine)
        self._hold(known or new_broker(clock))
        self._seeds = Seeds() if config is None else load(config)
        self.host = host
        self.port = port
        self.faults = Faults(
            self.clock,
            relayed=relay,
            seed=fault_seed,
            expire=lambda name, ack_ids: self.engine.expire(name, ack_ids),
        )
        self._server: Server | None = None
        self._new_server: Callable[[], Server] = lambda: Server(
            self._broker,
            credentials=server_credentials,
            interceptors=interceptors,
            faults=self.faults,
            access=access,
            rest=Rest() if rest is True else rest or None,
        )

    def _hold(self, broker: Broker) -> None:
        self._broker = broker
        self.engine = broker.engine
        self.clock = broker.clock
        self.history = broker.history

    @property
    def endpoint(self) -> str:
        """`host:port`, as clients and PUBSUB_EMULATOR_HOST take it."""
        return f"{self.host}:{self.port}"

    def start(self) -> Emulator:
        if self._server is None:
            if self._broker.is_closed:
                self._hold(self._new_broker(self.clock))
            try:
                self._seeds.plant(self._broker.call)
                self._server = self._serve()
            except BaseException:
                self._broker.close()
                raise
        return self

    def _serve(self) -> Server:
        server = self._new_server()
        loop = LoopThread.acquire()
        try:
            self.port = loop.run(server.start(self.host, self.port))
        except BaseException:
            LoopThread.release()
            raise
        return server

    def stop(self) -> None:
        """End every call and free the port. The engine keeps its state and can be handed on.

        With `data_dir` all of it is on disk then, and the next start reads it there.
        """
        server, self._server = self._server, None
        if server is not None:
            LoopThread.current().run(server.stop())
            LoopThread.release()
            self._broker.close()

    def backlog(self, subscription: str) -> int:
        """Messages of a subscription (full name) that are not acknowledged for good."""
        return self.inspect(lambda engine: engine.backlog(subscription))

    def publish(
        self, topic: str, data: bytes | str, *, ordering_key: str = "", **attributes: str
    ) -> str:
        """Publish a message, text as UTF-8; returns its id.

        Raises:
            TypeError: the data is neither bytes nor text, or an attribute is no text.
        """
        if not isinstance(data, (bytes, str)):
            raise TypeError(f"data is {data!r}; it must be bytes or a str")
        for name, value in {"ordering_key": ordering_key, **attributes}.items():
            if not isinstance(value, str):
                raise TypeError(f"{name} is {value!r}; it must be a str")
        message = pubsub.PubsubMessage(
            data=data.encode() if isinstance(data, str) else data,
            attributes=attributes,
            ordering_key=ordering_key,
        )
        request = pubsub.PublishRequest(topic=topic, messages=[message])
        (message_id,) = self.inspect(lambda engine: engine.publish(request))
        return message_id

    def messages(self, topic: str) -> list[pubsub.PubsubMessage]:
        """What was published to a topic, as far as the history goes back."""
        return [event.message for event in self.history.publishes(topic)]

    def message(self, message_id: str, topic: str = "*") -> MessageHistory:
        """One message and what happened to it: its deliveries, acknowledgements and so on.

        Raises:
            LookupError: there is none, or several topics have one with this id: name the topic.
        """
        return self.history.message(message_id, topic)

    def wait_until_acked(self, subscription: str, timeout: float = 10.0) -> None:
        """Block until a subscription has nothing that is not acknowledged for good.

        Raises:
            TimeoutError: it still has after `timeout` seconds of real time.
        """
        try:
            self.history.wait_until(lambda: self.backlog(subscription) == 0, timeout)
        except TimeoutError:
            raise TimeoutError(
                f"{subscription} has {self.backlog(subscription)} messages that were not "
                f"acknowledged within {timeout} s"
            ) from None

    def reset(self) -> None:
        """Back to the start: lift all faults, forget everything, and make what `config` asks for.

        Open streams and waiting pulls end. Time stays where it is.
        """
        self.faults.clear()

        def start_anew(engine: Engine) -> None:
            self._broker.reset()
            self._seeds.plant(self._broker.call)

        self.inspect(start_anew)

    def inspect(self, read: Callable[[Engine], T]) -> T:
        """Call `read` with the engine, on the thread that owns it, and return what it returns."""
        if self._server is None or LoopThread.current().is_here:
            return read(self.engine)

        async def on_loop() -> T:
            return read(self.engine)

        return LoopThread.current().run(on_loop())

    def __enter__(self) -> Emulator:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
