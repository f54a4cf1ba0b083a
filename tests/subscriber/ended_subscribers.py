"""Waits until a broker has noticed the end of subscribers.

The broker learns of it a moment after the client or the process has ended. Until then it sends
redelivered messages to the dead stream, where a lease begins that has to end again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pullstream_emulator import Emulator
from pullstream_emulator.engine import Consumer
from tests.subscriber.streaming.fakes import eventually


def consumers_of(broker: Emulator, subscription: str) -> set[Consumer]:
    """Return the streams and waiting pulls that the broker knows."""
    return broker.inspect(lambda engine: set(engine.registry.subscription(subscription).consumers))


def wait_until_unread(broker: Emulator, subscription: str) -> None:
    """Wait until the broker knows no consumer of a subscription."""
    eventually(lambda: not consumers_of(broker, subscription))


@contextmanager
def noticed_end(broker: Emulator, subscription: str) -> Iterator[None]:
    """Wait after the block until no consumer is left that was there before the block."""
    before = consumers_of(broker, subscription)
    yield
    eventually(lambda: before.isdisjoint(consumers_of(broker, subscription)))
