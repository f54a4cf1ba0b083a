"""Index of subscribers by channel and key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

S = TypeVar("S")

# A channel and one of its keys. None: the whole channel.
Interest: TypeAlias = tuple[str, "str | None"]


T = TypeVar("T")

# The members are in insertion order.
Few: TypeAlias = "tuple[T, ...] | dict[T, None]"

_LONGEST_TUPLE = 4


def with_item(members: Few[T], member: T) -> Few[T]:
    """Return the set with `member`. Use the result instead of `members`, which may change."""
    if isinstance(members, dict):
        members[member] = None
        return members
    if member in members:
        return members
    more = (*members, member)
    return more if len(more) <= _LONGEST_TUPLE else dict.fromkeys(more)


def without_item(members: Few[T], member: T) -> Few[T]:
    """Return the set without `member`. Use the result instead of `members`, which may change."""
    if isinstance(members, dict):
        members.pop(member, None)
        return members
    return tuple(each for each in members if each != member)


class Index(Generic[S]):
    """Maps channels to keys to subscribers, including the subscribers of whole channels.

    Empty entries are removed. Adding an entry twice and removing a missing one have no effect.
    """

    def __init__(self) -> None:
        self._channels: dict[str, dict[str | None, Few[S]]] = {}

    def __contains__(self, channel: str) -> bool:
        """Return whether the channel or one of its keys has a subscriber."""
        return channel in self._channels

    def __len__(self) -> int:
        """Return the number of channels and keys that have subscribers."""
        return sum(len(keys) for keys in self._channels.values())

    def add(self, subscriber: S, interest: Interest) -> None:
        """Subscribe to a key, or to the whole channel if the key is None."""
        channel, key = interest
        keys = self._channels.setdefault(channel, {})
        keys[key] = with_item(keys.get(key, ()), subscriber)

    def remove(self, subscriber: S, interest: Interest) -> None:
        """Undo `add` for this key; an interest in the whole channel is a separate entry."""
        channel, key = interest
        keys = self._channels.get(channel, {})
        if key not in keys:
            return
        keys[key] = without_item(keys[key], subscriber)
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._channels[channel]

    def of_key(self, channel: str, key: str) -> Iterator[S]:
        """Yield the subscribers that get a message with this key, each once."""
        keys = self._channels.get(channel)
        if keys is None:
            return
        by_key = keys.get(key, ())
        yield from by_key
        for subscriber in keys.get(None, ()):
            if subscriber not in by_key:
                yield subscriber

    def only_key(self, channel: str, key: str) -> list[S]:
        """Return the subscribers of this key, without the subscribers of the whole channel."""
        return list(self._channels.get(channel, {}).get(key, ()))

    def of_channel(self, channel: str) -> list[S]:
        """Return the subscribers of the channel and of its keys, each once."""
        found: dict[S, None] = {}
        for subscribers in self._channels.get(channel, {}).values():
            found.update(dict.fromkeys(subscribers))
        return list(found)
