"""Who is subscribed to what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from .few import Few, minus, plus

S = TypeVar("S")

# A channel and a key of it; None: every key.
Interest: TypeAlias = tuple[str, "str | None"]


class Index(Generic[S]):
    """Channel to key to subscribers, and those of whole channels. Nothing is left of what is empty.

    Adding twice and removing what is not there change nothing.
    """

    def __init__(self) -> None:
        self._channels: dict[str, dict[str | None, Few[S]]] = {}

    def __contains__(self, channel: str) -> bool:
        """Whether anybody is subscribed to anything of the channel."""
        return channel in self._channels

    def __len__(self) -> int:
        """Channels and keys with subscribers."""
        return sum(len(keys) for keys in self._channels.values())

    def add(self, subscriber: S, interest: Interest) -> None:
        channel, key = interest
        keys = self._channels.setdefault(channel, {})
        keys[key] = plus(keys.get(key, ()), subscriber)

    def remove(self, subscriber: S, interest: Interest) -> None:
        channel, key = interest
        keys = self._channels.get(channel, {})
        if key not in keys:
            return
        keys[key] = minus(keys[key], subscriber)
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._channels[channel]

    def of_key(self, channel: str, key: str) -> Iterator[S]:
        """Those who get a message with this key, each once."""
        keys = self._channels.get(channel)
        if keys is None:
            return
        by_key = keys.get(key, ())
        yield from by_key
        for subscriber in keys.get(None, ()):
            if subscriber not in by_key:
                yield subscriber

    def only_key(self, channel: str, key: str) -> list[S]:
        """Those who are subscribed to this very key."""
        return list(self._channels.get(channel, {}).get(key, ()))

    def of_channel(self, channel: str) -> list[S]:
        """Everybody who is subscribed to anything of the channel, each once."""
        found: dict[S, None] = {}
        for subscribers in self._channels.get(channel, {}).values():
            found.update(dict.fromkeys(subscribers))
        return list(found)
