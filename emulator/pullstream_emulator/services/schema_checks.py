"""Checks of published messages against the schemas of their topics.

The publish itself does a quick check. A longer one runs on a thread before the publish. Meanwhile
other calls continue:

- Later publishes to the topic wait, so that messages are published in the order of their requests.
- The settings of the topic, or its schema, may change. Then the messages are checked again, so that
  published messages match the schema at the time of publishing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.resources.topics import Validate
from pullstream_emulator.schemas import SchemaRegistry
from pullstream_emulator.schemas.enforcement import Rules
from pullstream_protocol.errors import Aborted, InvalidArgument, NotFound, RpcError
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

R = TypeVar("R")

# Most checks of the same messages or definition, if the schema changes during each check.
MAX_CHECKS = 5
MAX_THREADS = 4


class CheckThreads:
    """A pool of four threads. Every method runs on the event loop of the broker.

    A function that runs cannot be ended: if its caller is cancelled, or if the pool is closed, it
    keeps its thread until it returns.
    """

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Accept functions, also after `close`."""
        self._executor = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="pullstream-check")
        self._jobs: set[asyncio.Future[Any]] = set()
        self._closed: RpcError | None = None

    async def run(self, function: Callable[..., R], *args: object) -> R:
        """Call `function` on a thread, after the earlier ones; return its result.

        Args:
            function: The function.
            *args: Its arguments.

        Raises:
            RpcError: The pool is closed.
            Exception: The function has raised it.
        """
        if self._closed is not None:
            raise self._closed
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._executor, function, *args)
        self._jobs.add(job)
        try:
            return await job
        except asyncio.CancelledError:
            if self._closed is not None:
                raise self._closed from None
            raise
        finally:
            self._jobs.discard(job)

    def close(self, reason: RpcError) -> None:
        """End all waiting calls and later ones with `reason`."""
        self._closed = reason
        for job in self._jobs:
            job.cancel()
        self._executor.shutdown(wait=False)


class SchemaChecks:
    """Long checks, awaited on the event loop that owns the engine."""

    def __init__(self, engine: Engine, schemas: SchemaRegistry, threads: CheckThreads) -> None:
        self._topics = engine.topics
        self._registry = engine.registry
        self._schemas = schemas
        self._threads = threads
        # By topic: held while messages are checked, and waited for by later publishes.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def check(
        self, request: pubsub.PublishRequest | feeds.AppendRequest
    ) -> dict[str, Validate | None]:
        """Check the messages of a request if this takes long, after earlier requests of the topic.

        Returns:
            The keyword argument `validate` for the publish, valid until the next await: a function
            with the outcome of the check; None: the publish must check the messages.

        Raises:
            ResourceExhausted: There is no room for the request.
            Aborted: The schema changed during every check.
        """
        lock = self._locks.get(request.topic)
        if lock is None:
            if self._long_check(request) is None:
                return {"validate": None}
            lock = self._locks[request.topic] = asyncio.Lock()
        with self._topics.reserve(request.ByteSize()):
            async with lock:
                return {"validate": await self._checked(request)}

    async def _checked(
        self, request: pubsub.PublishRequest | feeds.AppendRequest
    ) -> Validate | None:
        for _ in range(MAX_CHECKS):
            rules = self._long_check(request)
            if rules is None:
                return None
            data = [message.data for message in request.messages]
            try:
                revision_ids = await self._threads.run(rules.check, data)
            except InvalidArgument as error:
                # The publish raises it, unless it refuses the request for another reason.
                return _refusal(error)
            if rules == self._rules(request.topic):
                return lambda topic, messages: rules.mark(messages, revision_ids)
        raise Aborted(
            f"The schema of {request.topic} changed {MAX_CHECKS} times while the messages were "
            "checked. Publish them again."
        )

    def _long_check(self, request: pubsub.PublishRequest | feeds.AppendRequest) -> Rules | None:
        """Return the rules if the check needs a thread; None if the publish can do it."""
        rules = self._rules(request.topic)
        if rules is None or rules.is_quick(message.data for message in request.messages):
            return None
        return rules

    def _rules(self, name: str) -> Rules | None:
        """Return the present rules of the topic's schema; None without a topic or a schema."""
        topic = self._registry.topics.get(name)
        if topic is None or not topic.config.HasField("schema_settings"):
            return None
        try:
            return self._schemas.rules(topic.config.schema_settings)
        except NotFound:
            return None


def _refusal(error: InvalidArgument) -> Validate:
    def refuse(topic: pubsub.Topic, messages: Sequence[pubsub.PubsubMessage]) -> None:
        raise error

    return refuse
