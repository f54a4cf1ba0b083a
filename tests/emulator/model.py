"""What a subscription promises, written down as plainly as possible: the engine is held to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"


@dataclass(frozen=True)
class Terms:
    """What the subscription is set to. `retry`: bounds of the backoff; `attempts`: the most."""

    ordered: bool = False
    exactly_once: bool = False
    filtered: bool = False
    retains: bool = False
    retry: tuple[int, int] = (0, 0)
    attempts: int = 0

    def delay(self, failed: int) -> float:
        low, high = self.retry
        return min(float(low * 2 ** (failed - 1)), high)


@dataclass(eq=False)
class Message:
    """One published message in one subscription. It `matches` the filter or not."""

    seq: int
    data: str
    key: str
    published: float
    matches: bool
    failed: int = 0
    newest_ack_id: str = ""
    leased: bool = False
    done: bool = False
    not_before: float = 0


@dataclass
class Key:
    """The unfinished messages of a key, in the order of publishing.

    The first `next` of them are delivered: leased, or acknowledged while an earlier one was not, or
    failed. The rest waits.
    """

    messages: list[Message] = field(default_factory=list)
    acked: list[Message] = field(default_factory=list)
    next: int = 0
    failed: bool = False
    not_before: float = 0
    holder: int | None = None

    def offers(self, consumer: int, now: float) -> Message | None:
        """The one message of the key that `consumer` may be given now."""
        if self.failed or self.next == len(self.messages) or self.holder not in (None, consumer):
            return None
        return None if now < self.not_before else self.messages[self.next]

    def drop(self, message: Message) -> None:
        self.next -= 1
        self.messages.remove(message)

    def settle(self) -> None:
        """A lease has ended. When none is left, a key with a failure starts again at it."""
        while self.messages and self.messages[0] in self.acked:
            first = self.messages[0]
            first.done = True
            self.acked.remove(first)
            self.drop(first)
        if not any(m.leased for m in self.messages):
            self.holder = None
            if self.failed:
                self.failed, self.next, self.acked = False, 0, []


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

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.keys: dict[str, Key] = {}
        self.by_data: dict[str, Message] = {}
        self.leases: dict[str, Lease] = {}
        # Every ack id ever given out.
        self.given: dict[str, Message] = {}
        self.sizes: dict[str, int] = {}
        self.rooms: dict[int, Room] = {}
        # Data and failed attempts of each message for the dead-letter topic, in order.
        self.dead: list[tuple[str, int]] = []

    def publish(self, data: str, key: str, now: float, *, matches: bool) -> None:
        seq, key = len(self.by_data) + 1, key if self.terms.ordered else ""
        message = self.by_data[data] = Message(seq, data, key, now, matches)
        message.done = self.terms.filtered and not matches
        if key and not message.done:
            self.keys.setdefault(key, Key()).messages.append(message)

    def available(self, consumer: int, now: float) -> bool:
        """Whether there is something that `consumer` might be given."""
        free = (m for m in self.by_data.values() if not m.key and not m.done and not m.leased)
        return any(m.not_before <= now for m in free) or any(
            key.offers(consumer, now) for key in self.keys.values()
        )

    def deliver(self, consumer: int, message: Message, ack_id: str, size: int, now: float) -> None:
        data = message.data
        assert not message.leased, f"{data} was delivered while it was leased"
        assert not message.done, f"{data} was delivered after it was finished"
        assert message.not_before <= now, f"{data} was delivered before its backoff was over"
        assert ack_id not in self.given, f"{ack_id} was given out twice"
        if message.key:
            key = self.keys[message.key]
            assert key.offers(consumer, now) is message, f"{data} was delivered out of order"
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

    # ---- outcomes ------------------------------------------------------------------------------

    def acknowledge(self, ack_ids: list[str]) -> dict[str, str]:
        """Returns the ids that the engine must refuse, and why."""
        asked = [self.given[i] for i in ack_ids if i in self.leases]
        refused = {}
        for ack_id in dict.fromkeys(ack_ids):
            if ack_id in self.leases:
                if self.terms.exactly_once and (code := self._obstacle(self.given[ack_id], asked)):
                    refused[ack_id] = code
            elif not self._acknowledge_late(ack_id):
                refused[ack_id] = INVALID
        for ack_id in [i for i in dict.fromkeys(ack_ids) if i in self.leases and i not in refused]:
            message = self._end_lease(ack_id)
            if message.key:
                self.keys[message.key].acked.append(message)
                self.keys[message.key].settle()
            else:
                message.done = True
        for ack_id in [i for i in refused if i in self.leases and refused[i] == INVALID]:
            self._wait(self._end_lease(ack_id), 0)
        return refused

    def _obstacle(self, message: Message, asked: list[Message]) -> str:
        """What an earlier message of its key is to the acknowledgement of this one."""
        if not message.key:
            return ""
        key = self.keys[message.key]
        before = key.messages[: key.messages.index(message)]
        if any(not m.leased and m not in key.acked for m in before):
            return INVALID
        return UNORDERED if any(m not in asked for m in before) else ""

    def _acknowledge_late(self, ack_id: str) -> bool:
        """The message waits to be delivered again: it need not be."""
        message = self.given[ack_id]
        newest = message.newest_ack_id == ack_id
        if self.terms.exactly_once or message.key or message.done or not newest:
            return False
        message.done = True
        return True

    def modify(self, ack_ids: list[str], seconds: int, now: float) -> dict[str, str]:
        """Returns the ids that the engine must refuse, and why."""
        refused = {ack_id: INVALID for ack_id in ack_ids if ack_id not in self.leases}
        for ack_id in [i for i in dict.fromkeys(ack_ids) if i not in refused]:
            if seconds:
                self.leases[ack_id].due = now + seconds
            else:
                self.fail(ack_id, now)
        return refused

    def expire(self, now: float) -> None:
        due = [i for i, lease in self.leases.items() if lease.due <= now]
        for ack_id in sorted(due, key=lambda i: self.leases[i].due):
            self.fail(ack_id, now)

    def fail(self, ack_id: str, now: float) -> None:
        message = self._end_lease(ack_id)
        message.failed += 1
        if 0 < self.terms.attempts <= message.failed:
            self.dead.append((message.data, message.failed))
            message.done = True
            if message.key:
                self.keys[message.key].drop(message)
                self.keys[message.key].settle()
        else:
            self._wait(message, now + self.terms.delay(message.failed))

    def _wait(self, message: Message, not_before: float) -> None:
        if message.key:
            key = self.keys[message.key]
            key.failed = True
            key.not_before = max(key.not_before, not_before)
            key.settle()
        else:
            message.not_before = not_before

    def give_back(self, consumer: int) -> None:
        for ack_id in [i for i, lease in self.leases.items() if lease.consumer == consumer]:
            self._wait(self._end_lease(ack_id), 0)

    def _end_lease(self, ack_id: str) -> Message:
        lease = self.leases.pop(ack_id)
        lease.message.leased = False
        room = self.rooms[lease.consumer]
        room.messages -= 1
        room.bytes -= self.sizes[lease.message.data]
        return lease.message

    # ---- seeks, and a restart ------------------------------------------------------------------

    def seek(self, wanted: Callable[[Message], bool], kept: Callable[[Message], bool]) -> None:
        """What is `wanted` is unfinished from now on, if it was so before or is still `kept`."""
        for message in self.by_data.values():
            possible = kept(message) and not (self.terms.filtered and not message.matches)
            if not message.done:
                message.done = not wanted(message)
            elif wanted(message) and possible:
                message.done, message.failed = False, 0
        self.start_over()

    def start_over(self) -> None:
        """Nobody holds anything any more; what is unfinished waits, without a backoff."""
        for ack_id in list(self.leases):
            self._end_lease(ack_id)
        self.keys.clear()
        for message in self.by_data.values():
            message.not_before, message.newest_ack_id = 0, ""
            if message.key and not message.done:
                self.keys.setdefault(message.key, Key()).messages.append(message)

    def restart(self) -> None:
        """The consumers are gone too."""
        self.start_over()
        self.rooms.clear()

    @property
    def backlog(self) -> int:
        return sum(not message.done for message in self.by_data.values())
