"""The broker inside another process: `with Emulator() as emulator: ...`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, ClassVar, TypeVar

import grpc
import grpc.aio

from protocol.clock import SYSTEM_CLOCK, Clock

from .engine import Engine
from .faults import Faults
from .server import Server, new_engine

T = TypeVar("T")


class Emulator:
    """A broker on loopback, for as long as the `with` block lasts.

        with Emulator() as emulator:
            client = SubscriberClient(endpoint=emulator.endpoint)

    Args:
        clock: what the broker takes for time. With a `ManualClock`, leases end when the test calls
            `emulator.clock.advance(seconds)`, which returns after the broker has acted on it.
        host, port: where to listen; port 0 picks a free one, kept in `port`.
        engine: the state to serve. Hand `other.engine` on to start again where another one stopped.
        server_credentials: serve TLS with these instead of plaintext.
        interceptors: grpc.aio server interceptors, called for every RPC.
        relay: let connections come through a relay, slower, so that `faults.black_hole()` can
            swallow their bytes.

    `faults` makes the broker misbehave: docs/faults.md.

    Thread-safe. `start` and `stop` may be called by hand instead of `with`; both are idempotent.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        host: str = "127.0.0.1",
        port: int = 0,
        engine: Engine | None = None,
        server_credentials: grpc.ServerCredentials | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        relay: bool = False,
    ) -> None:
        self.clock = clock
        self.host = host
        self.port = port
        self.engine = engine or new_engine(clock)
        self.faults = Faults(clock, relayed=relay)
        self._server: Server | None = None
        self._new_server: Callable[[], Server] = lambda: Server(
            self.engine,
            clock=clock,
            credentials=server_credentials,
            interceptors=interceptors,
            faults=self.faults,
        )

    @property
    def endpoint(self) -> str:
        """`host:port`, as clients and PUBSUB_EMULATOR_HOST take it."""
        return f"{self.host}:{self.port}"

    def start(self) -> Emulator:
        if self._server is None:
            server = self._new_server()
            loop = _LoopThread.acquire()
            try:
                self.port = loop.run(server.start(self.host, self.port))
            except BaseException:
                _LoopThread.release()
                raise
            self._server = server
        return self

    def stop(self) -> None:
        """End every call and free the port. The engine keeps its state and can be handed on."""
        server, self._server = self._server, None
        if server is not None:
            _LoopThread.current().run(server.stop())
            _LoopThread.release()

    def backlog(self, subscription: str) -> int:
        """Messages of a subscription (full name) that are not acknowledged for good."""
        return self.inspect(lambda engine: engine.backlog(subscription))

    def inspect(self, read: Callable[[Engine], T]) -> T:
        """Call `read` with the engine, on the thread that owns it, and return what it returns."""
        if self._server is None:
            return read(self.engine)

        async def on_loop() -> T:
            return read(self.engine)

        return _LoopThread.current().run(on_loop())

    def __enter__(self) -> Emulator:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class _LoopThread:
    """The one event loop of all emulators in this process.

    One for all, because grpc.aio has one poller for a process: with two loops each of them is woken
    for the other's events. The first emulator starts the thread, the last one ends it.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _current: ClassVar[_LoopThread | None] = None
    _users: ClassVar[int] = 0

    @classmethod
    def acquire(cls) -> _LoopThread:
        with cls._lock:
            cls._users += 1
            if cls._current is None:
                cls._current = cls()
            return cls._current

    @classmethod
    def current(cls) -> _LoopThread:
        if cls._current is None:
            raise RuntimeError("no emulator is running in this process")
        return cls._current

    @classmethod
    def release(cls) -> None:
        with cls._lock:
            cls._users -= 1
            if cls._users:
                return
            last, cls._current = cls._current, None
        if last is not None:
            last._close()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # Daemon: a test run that forgets to stop its emulator must still be able to exit.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="pullstream-emulator", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
