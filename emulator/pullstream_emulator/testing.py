"""A broker inside another process: `with Emulator() as emulator: ...`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio

from pullstream_protocol import names
from pullstream_protocol.clock import Clock
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .access import Access
from .broker import PROFILES, Broker
from .config import ConfigSource, Seeds, load
from .engine import Engine
from .engine.delivery.subscription import MAX_PER_RESPONSE
from .faults import Faults
from .history import DEFAULT_LIMIT, MessageHistory
from .loop_thread import LoopThread
from .rest.server import Rest
from .server import DEFAULT_RECEIVE_TIMEOUT, MAX_PORT, Server
from .services.disk_barrier import change
from .storage.opening import open_storage

T = TypeVar("T")


class Emulator:
    """A broker on loopback, for the duration of the `with` block.

        with Emulator() as emulator:
            client = SubscriberClient(endpoint=emulator.endpoint)

    `faults` makes the broker misbehave: docs/faults.md. `history` records events: docs/testing.md.
    Topics and subscriptions are given by their full names.

    Thread-safe. Instead of `with`, `start` and `stop` may be called; both are idempotent.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        broker: Broker | None = None,
        server_credentials: grpc.ServerCredentials | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        relay: bool = False,
        access: Access | None = None,
        rest: bool | Rest = False,
        allow_hosts: Sequence[str] = (),
        allow_origins: Sequence[str] = (),
        config: ConfigSource | None = None,
        profile: str = PROFILES[0],
        max_bytes: int | None = None,
        history: int = DEFAULT_LIMIT,
        fault_seed: int = 0,
        data_dir: str | Path | None = None,
        durability: str | None = None,
        receive_timeout: float = DEFAULT_RECEIVE_TIMEOUT,
        recover: bool = False,
        max_loss: float | None = None,
        return_leases_on_disconnect: bool = False,
        max_pull_messages: int = MAX_PER_RESPONSE,
    ) -> None:
        """Create a broker. `with` or `start` serves it.

        Args:
            clock: The broker's source of time: real time by default, or a `ManualClock`. Both are
                advanced by `emulator.clock.advance(seconds)`, which returns after the broker has
                reacted.
            host: Address to listen on.
            port: Port to listen on; 0 picks a free one, which `port` then holds.
            broker: Broker to serve. Pass `other.broker` to continue where another emulator stopped,
                with its clock, history and settings.
            server_credentials: Serve TLS with these instead of plaintext.
            interceptors: Grpc.aio server interceptors, called for every RPC.
            relay: Route connections through a relay, which is slower, so that `faults.black_hole()`
                can stop their bytes.
            access: Tokens that callers must present: docs/security.md.
            rest: Also serve HTTP/JSON on the same port: docs/rest.md.
            allow_hosts: Further names that HTTP requests may have in their Host header:
                docs/security.md.
            allow_origins: Sites whose web pages may use the broker, such as
                `http://localhost:3000`.
            config: Initial topics, subscriptions and so on: a file's path, or the content of such a
                file.
            profile: "production" for the limits of the real service, "emulator" for ack deadlines
                from 1 s.
            max_bytes: Limit for all stored messages, in bytes; a publish above it is refused.
            history: Number of events that `history` keeps; 0 for none.
            fault_seed: Seed of the random numbers for faults with a probability.
            data_dir: Persist everything in this directory, and start with its content:
                docs/durability.md.
            durability: Class of topics that do not name one: "memory", "disk" (the default with
                `data_dir`) or "fsync".
            receive_timeout: Time for a client to send the opening of a connection, the head of an
                HTTP request, or its body, in seconds. After it the connection is closed.
            recover: If `data_dir` is damaged, continue with the remaining data, and log the losses.
            max_loss: Maximum loss in a crash at class "disk", in seconds of changes (default 0.5).
                Publishers wait for a disk that is too slow for it.
            return_leases_on_disconnect: When a streaming pull is cancelled or its connection ends,
                deliver its messages again at once, without a counted attempt. By default their
                leases continue until the ack deadline, as in the real service.
            max_pull_messages: The most messages in the answer to a Pull, 1 to 1000. Google's
                emulator has 100. A stream's responses stay as they are.

        Raises:
            ConfigError: `config` cannot be read or is malformed.
            StorageError: `data_dir` cannot be used: it is in use, damaged, or not writable. The
                text is the line that `pullstream emulator` prints. The class is in
                `pullstream_emulator.storage.opening`.
            ValueError: Another argument is out of range.
        """

        def new_broker(clock: Clock | None) -> Broker:
            storage = open_storage(data_dir, durability, recover=recover, max_loss=max_loss)
            return Broker(
                clock,
                history=history,
                profile=profile,
                max_bytes=max_bytes,
                storage=storage,
                return_leases_on_disconnect=return_leases_on_disconnect,
                max_pull_messages=max_pull_messages,
            )

        if not 0 <= port <= MAX_PORT:
            raise ValueError(f"port is {port}; it must be between 0 (a free one) and {MAX_PORT}")
        if not receive_timeout > 0:
            raise ValueError(f"receive_timeout is {receive_timeout}; it must be above 0 seconds")
        options = Rest() if rest is True else rest or None
        if options is not None:
            options = replace(
                options,
                allow_hosts=(*options.allow_hosts, *allow_hosts),
                allow_origins=(*options.allow_origins, *allow_origins),
            )
        self._new_broker = new_broker
        self._hold(broker or new_broker(clock))
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
            self.broker,
            credentials=server_credentials,
            interceptors=interceptors,
            faults=self.faults,
            access=access,
            rest=options,
            receive_timeout=receive_timeout,
        )

    def _hold(self, broker: Broker) -> None:
        self.broker = broker
        self.engine = broker.engine
        self.clock = broker.clock
        self.history = broker.history

    @property
    def endpoint(self) -> str:
        """Host and port, in the form that clients and PUBSUB_EMULATOR_HOST take."""
        return f"{self.host}:{self.port}"

    def start(self) -> Emulator:
        """Apply `config`, open the port, and return the emulator. No effect while it is running."""
        if self._server is None:
            if self.broker.is_closed:
                self._hold(self._new_broker(self.clock))
            try:
                self._seeds.plant(self.broker.call)
                self._server = self._serve()
            except BaseException:
                self.broker.close()
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
        """End every call and free the port. The engine keeps its state and may be passed on.

        With `data_dir` the whole state is on disk after this, and the next start reads it.

        Raises:
            StorageError: Confirmed changes could not be written, and are lost.
        """
        server, self._server = self._server, None
        if server is not None:
            LoopThread.current().run(server.stop())
            LoopThread.release()
            self.broker.close()

    def backlog(self, subscription: str) -> int:
        """Return the number of a subscription's messages without a final ack.

        Args:
            subscription: Full name of the subscription, or its id if only one project has it.

        Raises:
            ValueError: No subscription has this id, or several have it.
            NotFound: There is no subscription with this full name.
        """
        return self.inspect(
            lambda engine: engine.backlog(
                _full_name("subscription", subscription, engine.registry.subscriptions)
            )
        )

    def publish(
        self,
        topic: str,
        data: bytes | str | pubsub.PubsubMessage,
        ordering_key: str = "",
        **attributes: str,
    ) -> str:
        """Publish a message inside the broker, without a client, and return its ID.

        Takes the same arguments as `pullstream.PublisherClient.publish`.

        Args:
            topic: Full name of the topic, or its id if only one project has it.
            data: The payload; a str is encoded as UTF-8. Or a whole message.
            ordering_key: The ordering key; empty for none.
            **attributes: The attributes.

        Raises:
            TypeError: The data has another type, or an attribute is not a str.
            ValueError: A whole message was given together with a key or attributes. Or no topic has
                this id, or several have it.
        """
        if not isinstance(data, (bytes, str, pubsub.PubsubMessage)):
            raise TypeError(f"data is {data!r}; it must be bytes, a str or a PubsubMessage")
        for name, value in {"ordering_key": ordering_key, **attributes}.items():
            if not isinstance(value, str):
                raise TypeError(f"{name} is {value!r}; it must be a str")
        if isinstance(data, pubsub.PubsubMessage):
            if ordering_key or attributes:
                raise ValueError("a PubsubMessage has its own ordering key and attributes")
            message = data
        else:
            message = pubsub.PubsubMessage(
                data=data.encode() if isinstance(data, str) else data,
                attributes=attributes,
                ordering_key=ordering_key,
            )

        def append(engine: Engine) -> str:
            name = _full_name("topic", topic, engine.registry.topics)
            request = pubsub.PublishRequest(topic=name, messages=[message])
            (message_id,) = engine.publish(request)
            return message_id

        return self.inspect(append)

    def messages(self, topic: str) -> list[pubsub.PubsubMessage]:
        """Return the messages published to a topic that the history still holds."""
        return [event.message for event in self.history.publishes(topic)]

    def message(self, message_id: str, topic: str = "*") -> MessageHistory:
        """Return one message with its events: deliveries, acknowledgements and so on.

        Args:
            message_id: The message's id.
            topic: Name, id or pattern of the topic; by default any topic.

        Raises:
            LookupError: There is no such message, or several topics have one with this id: name
                the topic.
        """
        return self.history.message(message_id, topic)

    def wait_until_acked(self, subscription: str, timeout: float = 10.0) -> None:
        """Block until every message of a subscription is finally acknowledged.

        Args:
            subscription: Full name of the subscription, or its id if only one project has it.
            timeout: Longest wait, in seconds of real time.

        Raises:
            TimeoutError: Messages are left after `timeout` seconds.
        """
        try:
            self.history.wait_until(lambda: self.backlog(subscription) == 0, timeout)
        except TimeoutError:
            raise TimeoutError(
                f"{subscription} has {self.backlog(subscription)} messages that were not "
                f"acknowledged within {timeout} s"
            ) from None

    def reset(self) -> None:
        """Return to the initial state: lift faults, remove all state, and apply `config` again.

        Open streams and waiting pulls end. The clock keeps its time.
        """
        self.faults.clear()

        def start_anew(engine: Engine) -> None:
            self.broker.reset()
            self._seeds.plant(self.broker.call)

        self.inspect(start_anew)

    def inspect(self, read: Callable[[Engine], T]) -> T:
        """Call `read` with the engine on the thread that owns it, and return its result.

        Changes that `read` makes are as durable on return as their topics' classes require.
        """
        if self._server is None or LoopThread.current().is_here:
            return read(self.engine)

        async def on_loop() -> T:
            return await change(self.broker.storage, lambda: read(self.engine))

        return LoopThread.current().run(on_loop())

    def __enter__(self) -> Emulator:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _full_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the full name of a resource that is given by its id; return a full name unchanged."""
    if "/" in name:
        return name
    found = [each for each in known if names.short_id(each) == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"several projects have a {kind} {name!r}: {', '.join(sorted(found))}")
    raise ValueError(
        f"there is no {kind} {name!r}; give the id or the full name of one that exists, such as "
        f"projects/P/{kind}s/{name}"
    )
