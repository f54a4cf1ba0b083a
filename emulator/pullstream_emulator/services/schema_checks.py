"""Publishing to topics with schemas, with long checks outside the event loop.

A check that fits into one step of the event loop is part of the publish. A longer check runs in a
process of the pool, and the publish follows in one step. Meanwhile other calls continue:

- A publish that shares an ordering key with an earlier publish waits while that one is being
  checked. Other messages have no order, and may overtake it.
- The settings of the topic, or its schema, may change. Then the messages are checked again, so that
  published messages match the schema at the time of publishing. If the topic was deleted, the call
  ends as if it had come after the deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pullstream_emulator.engine import Engine
from pullstream_emulator.engine.resources.topics import Validate
from pullstream_emulator.offload import LOOP_BUDGET, Budget, BudgetExceeded, Offloaded, ProcessPool
from pullstream_emulator.schemas import SchemaRegistry
from pullstream_emulator.schemas.enforcement import Rules
from pullstream_protocol.errors import Aborted
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

Request = TypeVar("Request", pubsub.PublishRequest, feeds.AppendRequest)
R = TypeVar("R")

# Most checks of the same messages or definition, if the schema changes during each check.
MAX_CHECKS = 5


class _Turn:
    """A publish that is being checked or waits.

    Attributes:
        keys: The ordering keys of its messages.
        over: Set when it is done or has failed.
    """

    def __init__(self, keys: frozenset[str]) -> None:
        self.keys = keys
        self.over = asyncio.Event()


class SchemaChecks:
    """Executes requests that publish, on the event loop that owns the engine."""

    def __init__(self, engine: Engine, schemas: SchemaRegistry, processes: ProcessPool) -> None:
        self._topics = engine.topics
        self._registry = engine.registry
        self._schemas = schemas
        self._processes = processes
        # By topic: publishes that are being checked or wait for earlier ones, oldest first.
        self._turns: dict[str, list[_Turn]] = {}

    def carry_out(self, request: Request, publish: Callable[[Request, Validate], R]) -> R:
        """Call `publish` with the request and a function that validates its messages.

        Raises:
            Offloaded: The check takes too long, or the publish must wait for an earlier one.
        """
        if self._turns and self._earlier(request.topic, _keys(request)):
            raise Offloaded(self._work(request, publish))
        try:
            return publish(request, self._validate)
        except BudgetExceeded:
            raise Offloaded(self._work(request, publish)) from None

    def _validate(self, topic: pubsub.Topic, messages: Sequence[pubsub.PubsubMessage]) -> None:
        self._schemas.validate(topic, messages, Budget(LOOP_BUDGET))

    def _earlier(self, topic: str, keys: frozenset[str]) -> list[_Turn]:
        """Return the unfinished publishes that a publish with these keys must not overtake."""
        return [turn for turn in self._turns.get(topic, ()) if turn.keys & keys]

    @asynccontextmanager
    async def _work(
        self, request: Request, publish: Callable[[Request, Validate], R]
    ) -> AsyncIterator[Callable[[Any], R]]:
        name, size = request.topic, request.ByteSize()
        turn = _Turn(_keys(request))
        earlier = self._earlier(name, turn.keys)
        self._turns.setdefault(name, []).append(turn)

        def end() -> None:
            if turn.over.is_set():
                return
            turn.over.set()
            self._turns[name].remove(turn)
            if not self._turns[name]:
                del self._turns[name]

        try:
            with self._topics.reserve(size) as release:
                for other in earlier:
                    await other.over.wait()
                validate = await self._checked(request, size)

                def carry_out(request: Request) -> R:
                    release()
                    try:
                        return publish(request, validate)
                    finally:
                        end()

                yield carry_out
        finally:
            end()

    async def _checked(self, request: Request, size: int) -> Validate:
        """Check messages. Return a function that marks them, valid until the next await."""
        for _ in range(MAX_CHECKS):
            rules = self._rules(request.topic)
            if rules is None:
                return self._validate
            await asyncio.to_thread(rules.compile)
            data = [message.data for message in request.messages]
            found = await self._processes.run(size, Rules.check, rules, data, Budget())
            if rules == self._rules(request.topic):
                return lambda topic, messages: rules.mark(messages, found)
        raise Aborted(
            f"The schema of {request.topic} changed {MAX_CHECKS} times while the messages were "
            "checked. Publish them again."
        )

    def _rules(self, name: str) -> Rules | None:
        """Return the present rules of the topic's schema; None without a topic or a schema."""
        topic = self._registry.topics.get(name)
        if topic is None or not topic.config.HasField("schema_settings"):
            return None
        return self._schemas.rules(topic.config.schema_settings)


def _keys(request: pubsub.PublishRequest | feeds.AppendRequest) -> frozenset[str]:
    return frozenset(message.ordering_key for message in request.messages) - {""}
