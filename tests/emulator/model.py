"""What a subscription promises, written down as plainly as possible: the engine is held to it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Message:
    """One published message in one subscription."""

    data: str
    key: str
    failed: int = 0
    newest_ack_id: str = ""
    leased: bool = False
    done: bool = False


@dataclass
class Key:
    """A key's messages in the order of publishing.

    Those before `final` are acknowledged for good. Those up to `next` are delivered: leased, or
    acknowledged while an earlier one was not. The rest waits. With exactly-once delivery what was
    acknowledged is not delivered again with an earlier one that failed.
    """

    exactly_once: bool
    messages: list[Message] = field(default_factory=list)
    final: int = 0
    next: int = 0
    failed: bool = False
    holder: int | None = None
    acked: set[int] = field(default_factory=set)

    def offers(self, consumer: int) -> Message | None:
        """The one message of the key that `consumer` may be given now."""
        if self.failed or self.next == len(self.messages) or self.holder not in (None, consumer):
            return None
        return self.messages[self.next]

    def settle(self, message: Message, *, acked: bool) -> None:
        """A lease ended. When none is left, a key with a failure starts again at `final`."""
        if acked:
            self.acked.add(self.messages.index(message))
        else:
            self.failed = True
        while self.final in self.acked:
            self.messages[self.final].done = True
            self.final += 1
        if any(m.leased for m in self.messages):
            return
        self.holder = None
        if self.failed:
            self.failed = False
            self.next = self.final
            kept = {i for i in self.acked if i > self.final} if self.exactly_once else set()
            for index in sorted(kept, reverse=True):
                self.messages.pop(index).done = True
            self.acked = {i for i in self.acked if i < self.final}


@dataclass
class Lease:
    message: Message
    consumer: int
    due: float


@dataclass
class Room:
    """What a consumer has outstanding, and how much it wants."""

    max_messages: int
    max_bytes: int
    messages: int = 0
    bytes: int = 0

    @property
    def is_left(self) -> bool:
        return (self.max_messages <= 0 or self.messages < self.max_messages) and (
            self.max_bytes <= 0 or self.bytes < self.max_bytes
        )


class Model:
    """One subscription. Each method asserts that what the engine did was allowed."""

    def __init__(self, *, ordered: bool, exactly_once: bool) -> None:
        self.ordered = ordered
        self.exactly_once = exactly_once
        self.free: list[Message] = []
        self.keys: defaultdict[str, Key] = defaultdict(lambda: Key(exactly_once))
        self.by_data: dict[str, Message] = {}
        self.leases: dict[str, Lease] = {}
        # Every ack id ever given out.
        self.given: dict[str, Message] = {}
        self.sizes: dict[str, int] = {}
        self.rooms: dict[int, Room] = {}

    def publish(self, data: str, key: str) -> None:
        message = Message(data, key if self.ordered else "")
        self.by_data[data] = message
        (self.keys[message.key].messages if message.key else self.free).append(message)

    def available(self, consumer: int) -> bool:
        """Whether there is something that `consumer` might be given."""
        return any(not m.leased and not m.done for m in self.free) or any(
            key.offers(consumer) for key in self.keys.values()
        )

    def deliver(
        self, consumer: int, data: str, ack_id: str, size: int, failed: int, due: float
    ) -> None:
        message = self.by_data[data]
        assert not message.leased, f"{data} was delivered while it was leased"
        assert not message.done, f"{data} was delivered after it was acknowledged"
        assert ack_id not in self.given, f"{ack_id} was given out twice"
        assert failed == message.failed, f"{data} failed {message.failed} times, not {failed}"
        if message.key:
            key = self.keys[message.key]
            assert key.offers(consumer) is message, f"{data} was delivered out of order"
            key.next += 1
            key.holder = consumer
        room = self.rooms[consumer]
        assert room.is_left, f"{data} was delivered to a consumer without room"
        room.messages += 1
        room.bytes += size
        message.leased = True
        message.newest_ack_id = ack_id
        self.given[ack_id] = message
        self.sizes[data] = size
        self.leases[ack_id] = Lease(message, consumer, due)

    def acknowledge(self, ack_ids: list[str]) -> set[str]:
        """Returns the ids that the engine must call stale."""
        return {ack_id for ack_id in dict.fromkeys(ack_ids) if not self._acknowledge(ack_id)}

    def _acknowledge(self, ack_id: str) -> bool:
        if ack_id in self.leases:
            self._end(ack_id, acked=True)
            return True
        message = self.given[ack_id]
        newest = message.newest_ack_id == ack_id
        if self.exactly_once or message.key or message.done or not newest:
            return False
        # Late, and the message lies in the queue again.
        message.done = True
        return True

    def modify(self, ack_ids: list[str], seconds: int, now: float) -> set[str]:
        """Returns the ids that the engine must call stale."""
        stale = {ack_id for ack_id in ack_ids if ack_id not in self.leases}
        for ack_id in set(ack_ids) - stale:
            if seconds:
                self.leases[ack_id].due = now + seconds
            else:
                self.fail(ack_id)
        return stale

    def expire(self, now: float) -> None:
        for ack_id in [i for i, lease in self.leases.items() if lease.due <= now]:
            self.fail(ack_id)

    def fail(self, ack_id: str) -> None:
        self.leases[ack_id].message.failed += 1
        self._end(ack_id, acked=False)

    def give_back(self, consumer: int) -> None:
        for ack_id in [i for i, lease in self.leases.items() if lease.consumer == consumer]:
            self._end(ack_id, acked=False)

    def _end(self, ack_id: str, *, acked: bool) -> None:
        lease = self.leases.pop(ack_id)
        message = lease.message
        message.leased = False
        room = self.rooms[lease.consumer]
        room.messages -= 1
        room.bytes -= self.sizes[message.data]
        if message.key:
            self.keys[message.key].settle(message, acked=acked)
        else:
            message.done = acked

    @property
    def backlog(self) -> int:
        return sum(not message.done for message in self.by_data.values())
