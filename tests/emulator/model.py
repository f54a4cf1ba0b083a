"""A plain model of a subscription. Tests compare the engine with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
RESERVED_FOR = 1.0


@dataclass(frozen=True)
class Terms:
    """The settings of the subscription.

    Attributes:
        retry: Minimum and maximum backoff in seconds.
        attempts: Maximum number of delivery attempts. 0: no dead-letter policy.
    """

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
    """One published message in one subscription. `matches` is whether it passes the filter."""

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

    The first `next` of them are delivered: they are leased, or acknowledged while an earlier one
    was not. The others wait. Only `holder` may take more: it holds leases of the key, or nacked a
    message of it a short while ago. That period begins at the end of the backoff for which the key
    is `delayed`.
    """

    messages: list[Message] = field(default_factory=list)
    acked: list[Message] = field(default_factory=list)
    next: int = 0
    not_before: float = 0
    delayed: bool = False
    reserved_until: float = 0
    holder: int | None = None

    def offers(self, consumer: int) -> Message | None:
        """Return the only message of the key that `consumer` may receive now."""
        if self.delayed or self.next == len(self.messages) or self.holder not in (None, consumer):
            return None
        return self.messages[self.next]

    @property
    def is_leased(self) -> bool:
        return any(message.leased for message in self.messages)

    def drop(self, message: Message) -> None:
        self.next -= 1
        self.messages.remove(message)

    def settle(self) -> None:
        """End a lease by an acknowledgement."""
        while self.messages and self.messages[0] in self.acked:
            first = self.messages[0]
            first.done = True
            self.acked.remove(first)
            self.drop(first)
        if not self.is_leased:
            self.holder = None


@dataclass
class Lease:
    message: Message
    consumer: int
    due: float


@dataclass
class Room:
    """The outstanding messages of a consumer, and its limits."""

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
    """One subscription. Each method asserts that the engine's action was allowed."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.keys: dict[str, Key] = {}
        self.by_data: dict[str, Message] = {}
        self.leases: dict[str, Lease] = {}
        # Every ack ID that was ever assigned.
        self.given: dict[str, Message] = {}
        self.sizes: dict[str, int] = {}
        self.rooms: dict[int, Room] = {}
        # The consumers that have joined and not left.
        self.here: set[int] = set()
        # The time at which an ID was acknowledged, with exactly-once delivery.
        self.acked_at: dict[str, float] = {}
        # Data and failed attempts of each message for the dead-letter topic, in order.
        self.dead: list[tuple[str, int]] = []

    def publish(self, data: str, key: str, now: float, *, matches: bool) -> None:
        seq, key = len(self.by_data) + 1, key if self.terms.ordered else ""
        message = self.by_data[data] = Message(seq, data, key, now, matches)
        message.done = self.terms.filtered and not matches
        if key and not message.done:
            self.keys.setdefault(key, Key()).messages.append(message)

    def available(self, consumer: int, now: float) -> bool:
        """Return whether there is a message that `consumer` may receive."""
        free = (m for m in self.by_data.values() if not m.key and not m.done and not m.leased)
        return any(m.not_before <= now for m in free) or any(
            key.offers(consumer) for key in self.keys.values()
        )

    def deliver(self, consumer: int, message: Message, ack_id: str, size: int, now: float) -> None:
        data = message.data
        assert not message.leased, f"{data} was delivered while it was leased"
        assert not message.done, f"{data} was delivered after it was finished"
        assert message.not_before <= now, f"{data} was delivered before its backoff was over"
        assert ack_id not in self.given, f"{ack_id} was given out twice"
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

    # ---- outcomes ------------------------------------------------------------------------------

    def may_be_forgotten(self, ack_id: str, now: float) -> bool:
        """Return whether the acknowledgement is so old that the engine need not remember it."""
        return now - self.acked_at.get(ack_id, now) > 600

    def acknowledge(self, ack_ids: list[str], now: float) -> dict[str, str]:
        """Return the IDs that the engine must refuse, with the reasons."""
        asked = [self.given[i] for i in ack_ids if i in self.leases]
        refused = {}
        for ack_id in dict.fromkeys(ack_ids):
            if ack_id in self.leases:
                if self.terms.exactly_once and (code := self._obstacle(self.given[ack_id], asked)):
                    refused[ack_id] = code
            elif ack_id not in self.acked_at and not self._acknowledge_late(ack_id):
                refused[ack_id] = INVALID
        for ack_id in [i for i in dict.fromkeys(ack_ids) if i in self.leases and i not in refused]:
            message = self._end_lease(ack_id)
            if self.terms.exactly_once:
                self.acked_at[ack_id] = now
            if message.key:
                self.keys[message.key].acked.append(message)
                self.keys[message.key].settle()
            else:
                message.done = True
        return refused

    def _obstacle(self, message: Message, asked: list[Message]) -> str:
        """Return the effect of an earlier message of its key on the acknowledgement of this one."""
        if not message.key:
            return ""
        key = self.keys[message.key]
        before = key.messages[: key.messages.index(message)]
        return UNORDERED if any(m not in asked for m in before) else ""

    def _acknowledge_late(self, ack_id: str) -> bool:
        """Acknowledge a message that waits for redelivery. It need not be delivered again."""
        message = self.given[ack_id]
        newest = message.newest_ack_id == ack_id
        if self.terms.exactly_once or message.key or message.done or not newest:
            return False
        message.done = True
        return True

    def modify(self, ack_ids: list[str], seconds: int, now: float) -> dict[str, str]:
        """Return the IDs that the engine must refuse, with the reasons."""
        refused = {ack_id: INVALID for ack_id in ack_ids if ack_id not in self.leases}
        live = [i for i in dict.fromkeys(ack_ids) if i not in refused]
        if seconds:
            for ack_id in live:
                self.leases[ack_id].due = now + seconds
        else:
            self.fail(live, now, is_nack=True)
        return refused

    def advance(self, now: float) -> None:
        """Let time pass: leases end, and the delays of keys end."""
        self.fail([i for i, lease in self.leases.items() if lease.due <= now], now)
        for key in self.keys.values():
            if key.delayed and key.not_before <= now:
                key.delayed = False
                self._reserve_or_free(key, now)
            elif not key.delayed and not key.is_leased and key.reserved_until <= now:
                key.holder = None

    def fail(self, ack_ids: list[str], now: float, *, is_nack: bool = False) -> None:
        """End leases without an acknowledgement.

        For each key, only the earliest message has failed.
        """
        messages = [self._end_lease(ack_id) for ack_id in ack_ids]
        for message in self._earliest(messages):
            message.failed += 1
            if 0 < self.terms.attempts <= message.failed:
                self.dead.append((message.data, message.failed))
                message.done = True
                not_before = 0.0
            else:
                not_before = now + self.terms.delay(message.failed)
            self._return(message, not_before, is_nack=is_nack)
        self._settle_keys(messages, now)

    def leave(self, consumer: int, now: float, *, give_back: bool) -> None:
        if give_back:
            held = [i for i, lease in self.leases.items() if lease.consumer == consumer]
            messages = [self._end_lease(ack_id) for ack_id in held]
            for message in self._earliest(messages):
                self._return(message, 0, is_nack=False)
            self._settle_keys(messages, now)
        self.here.remove(consumer)
        for key in self.keys.values():
            if key.holder == consumer and not (key.is_leased or key.delayed):
                key.holder = None

    def _earliest(self, messages: list[Message]) -> list[Message]:
        """Return the messages without a key, and the earliest message of each key."""
        firsts = {m.key: m for m in sorted(messages, key=lambda m: -m.seq) if m.key}
        return [m for m in messages if not m.key or firsts[m.key] is m]

    def _return(self, message: Message, not_before: float, *, is_nack: bool) -> None:
        """Return a message and all later ones of its key to the backlog, or remove it as dead."""
        if not message.key:
            message.not_before = not_before
            return
        key = self.keys[message.key]
        position = key.messages.index(message)
        if message.done:
            key.messages.remove(message)
            while position == 0 and key.messages and key.messages[0] in key.acked:
                first = key.messages.pop(0)
                key.acked.remove(first)
                first.done = True
        later = key.messages[position:]
        for ack_id in [i for i, lease in self.leases.items() if lease.message in later]:
            self._end_lease(ack_id)
        key.acked = [m for m in key.acked if m not in later]
        key.next = position
        key.not_before = max(key.not_before, not_before)
        if not is_nack and not key.is_leased:
            key.holder = None

    def _settle_keys(self, messages: list[Message], now: float) -> None:
        for key in {m.key for m in messages if m.key}:
            self._settle(self.keys[key], now)

    def _settle(self, key: Key, now: float) -> None:
        """Handle the end of leases of a key without an acknowledgement."""
        if key.next < len(key.messages) and key.not_before > now:
            key.delayed = True
        if not key.delayed:
            self._reserve_or_free(key, now)

    def _reserve_or_free(self, key: Key, now: float) -> None:
        """Reserve a key without leases for its holder for a while, if that is here and has room."""
        if key.is_leased:
            return
        holder = key.holder
        if holder is not None and holder in self.here and self.rooms[holder].is_left:
            key.reserved_until = now + RESERVED_FOR
        else:
            key.holder = None

    def _end_lease(self, ack_id: str) -> Message:
        lease = self.leases.pop(ack_id)
        lease.message.leased = False
        room = self.rooms[lease.consumer]
        room.messages -= 1
        room.bytes -= self.sizes[lease.message.data]
        return lease.message

    # ---- seeks, and a restart ------------------------------------------------------------------

    def seek(self, wanted: Callable[[Message], bool], kept: Callable[[Message], bool]) -> None:
        """Let a seek change the unfinished messages.

        A `wanted` message is unfinished after it, if it was unfinished before or is still `kept`.
        """
        for message in self.by_data.values():
            possible = kept(message) and not (self.terms.filtered and not message.matches)
            if not message.done:
                message.done = not wanted(message)
            elif wanted(message) and possible:
                message.done, message.failed = False, 0
        self.start_over()

    def start_over(self) -> None:
        """End all leases. All unfinished messages wait, without a backoff."""
        for ack_id in list(self.leases):
            self._end_lease(ack_id)
        self.keys.clear()
        for message in self.by_data.values():
            message.not_before, message.newest_ack_id = 0, ""
            if message.key and not message.done:
                self.keys.setdefault(message.key, Key()).messages.append(message)

    def restart(self) -> None:
        """Start over without any consumers."""
        self.start_over()
        self.rooms.clear()
        self.here.clear()

    @property
    def backlog(self) -> int:
        return sum(not message.done for message in self.by_data.values())
