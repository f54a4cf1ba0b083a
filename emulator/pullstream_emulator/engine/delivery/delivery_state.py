"""The delivery state of one subscription: its messages, ordering keys and consumers.

A `Delivery` is one message, a `KeyQueue` the messages of one ordering key, a `LeaseRun` the leases
of many messages, and a `Consumer` holds leases. The four refer to each other.

The messages of a key keep their order in every redelivery (pubsub-v1, "Order messages"):

- The broker delivers the messages of a key in publish order.
- While a consumer holds leases of a key, only this consumer gets more messages of the key.
- When the lease of a message ends without an acknowledgement, the broker delivers this message and
  *every* later message of the key again, in order. This includes messages that are still leased,
  and messages that were acknowledged meanwhile. With a retry policy the key waits for the backoff
  of the failed message.

Only the failed message gains a delivery attempt. The leases of the later messages end with it, so
their ack IDs are stale, and a nack of these messages has no effect.

With exactly-once delivery an acknowledgement is final. So only the first unfinished message of a
key can be acknowledged.
"""

from __future__ import annotations

import math
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, final

from pullstream_emulator.engine.record import Record

if TYPE_CHECKING:
    from pullstream_protocol.errors import RpcError


class Delivery:
    """One record in one subscription, from publish until its final acknowledgement.

    Attributes:
        record: The message.
        attempts: Number of failed deliveries (nacked or expired; a return does not count).
        holder: The consumer that leases it now; None while it waits.
        ack_id: The ack ID of its newest lease, "" before the first.
        number: The number of its newest lease among the leases of the subscription; 0 before the
            first.
        acked: Whether it was acknowledged but is still kept, because an earlier message of its key
            is unfinished or because it is in a queue for redelivery.
        key_queue: The queue of its ordering key; None without a key or without message ordering.
    """

    __slots__ = ("ack_id", "acked", "attempts", "holder", "key_queue", "number", "record")

    def __init__(self, record: Record, key_queue: KeyQueue | None) -> None:
        self.record = record
        self.key_queue = key_queue
        self.attempts = 0
        self.holder: Consumer | None = None
        self.ack_id = ""
        self.number = 0
        self.acked = False

    @property
    def client(self) -> str:
        """The client that leases it now; empty while it waits, or if the client has no name."""
        return "" if self.holder is None else self.holder.client


class KeyQueue:
    """The unfinished messages of one key in one subscription, oldest first.

    Attributes:
        waiting: Messages that are not delivered yet, or that wait for redelivery.
        delivered: Messages that are leased, or acknowledged after a message that is still leased.
        holder: The only consumer that may take messages of the key, because it holds leases of the
            key, or because the key is reserved for it. None: any consumer may.
        resume_at: The monotonic time before which a failed key must not be delivered again.
        reserved_until: The monotonic time at which a reservation ends.
        queued: Whether the key is in a queue of the backlog.
        delayed: Whether the key waits for `resume_at`.
        counted_acked: The number of acknowledged messages that the backlog has counted.
    """

    __slots__ = (
        "_leased",
        "counted_acked",
        "delayed",
        "delivered",
        "holder",
        "key",
        "queued",
        "reserved_until",
        "resume_at",
        "waiting",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiting: deque[Delivery] = deque()
        self.delivered: deque[Delivery] = deque()
        self.holder: Consumer | None = None
        self.queued = False
        self.delayed = False
        self.resume_at = 0.0
        self.reserved_until = 0.0
        self.counted_acked = 0
        self._leased = 0

    @property
    def deliverable(self) -> bool:
        """Whether a message waits and the key is not in a backoff."""
        return bool(self.waiting) and not self.delayed

    @property
    def acked(self) -> int:
        """Number of acknowledged messages behind a leased message."""
        return len(self.delivered) - self._leased

    @property
    def finished(self) -> bool:
        """Whether the key has no unfinished message, so the backlog can forget it."""
        return not self.waiting and not self.delivered

    @property
    def is_leased(self) -> bool:
        """Whether any message of the key is leased."""
        return self._leased > 0

    def take_first(self, consumer: Consumer) -> Delivery:
        """Deliver the next message of the key to `consumer`. The key must be deliverable."""
        delivery = self.waiting.popleft()
        self.delivered.append(delivery)
        self._leased += 1
        self.holder = consumer
        return delivery

    def end_acknowledged(self, delivery: Delivery) -> list[Delivery]:
        """End a lease by an acknowledgement. Return the messages that are final now."""
        delivery.acked = True
        self._leased -= 1
        if not self._leased:
            self.holder = None
        return self._pop_acknowledged()

    def restart(self, failed: Delivery, resume_at: float, *, keep_holder: bool) -> list[Delivery]:
        """Redeliver a message whose lease has ended, and every later message of the key.

        Args:
            failed: The first message to deliver again.
            resume_at: The monotonic time before which the key must not be delivered.
            keep_holder: Whether the redelivery is for the consumer that held the message. If False,
                any consumer may take the key, unless an earlier message is still leased.

        Returns:
            The later messages that are still leased. The caller ends their leases.
        """
        self.resume_at = max(self.resume_at, resume_at)
        later = self._pop_from(failed)
        leased = self._redeliver(later, keep_holder=keep_holder)
        self.waiting.appendleft(failed)
        return leased

    def drop_failed(
        self, failed: Delivery, *, keep_holder: bool
    ) -> tuple[list[Delivery], list[Delivery]]:
        """Remove a message whose lease has ended. For its key it counts as acknowledged.

        The later leased messages are redelivered immediately. A consumer that holds them until the
        failed message returns learns from this redelivery that the failed message will not return.

        Args:
            failed: The message to remove.
            keep_holder: See `restart`.

        Returns:
            The later messages that are still leased, whose leases the caller ends; and the messages
            that are final now, without the removed one.
        """
        later = self._pop_from(failed)
        final = 0
        if not self.delivered:
            while final < len(later) and later[final].acked:
                final += 1
        return self._redeliver(later[final:], keep_holder=keep_holder), later[:final]

    def release(self) -> None:
        """Let any consumer take the key, unless one of its messages is leased."""
        if not self._leased:
            self.holder = None

    def _pop_from(self, failed: Delivery) -> list[Delivery]:
        """Remove a delivered message whose lease has ended, and the later ones. Return the latter.

        The earlier ones are not touched: a key may have thousands of leases.
        """
        later: list[Delivery] = []
        while (delivery := self.delivered.pop()) is not failed:
            later.append(delivery)
        self._leased -= 1
        later.reverse()
        return later

    def _redeliver(self, later: Sequence[Delivery], *, keep_holder: bool) -> list[Delivery]:
        """Move messages to the front of `waiting`. Return the leased ones."""
        leased = [delivery for delivery in later if not delivery.acked]
        for delivery in later:
            delivery.acked = False
        self.waiting.extendleft(reversed(later))
        self._leased -= len(leased)
        if not keep_holder:
            self.release()
        return leased

    def _pop_acknowledged(self) -> list[Delivery]:
        finished: list[Delivery] = []
        while self.delivered and self.delivered[0].acked:
            finished.append(self.delivered.popleft())
        return finished


class ReadyKeys:
    """A queue of keys, with a part of the methods of a deque.

    Any key can be removed in constant time, because the queue may have thousands of keys.
    """

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: OrderedDict[KeyQueue, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queues)

    def __getitem__(self, _first: Literal[0]) -> KeyQueue:
        return next(iter(self._queues))

    def append(self, key_queue: KeyQueue) -> None:
        """Add a key at the end of the queue."""
        self._queues[key_queue] = None

    def popleft(self) -> KeyQueue:
        """Remove and return the key that has waited longest."""
        return self._queues.popitem(last=False)[0]

    def remove(self, key_queue: KeyQueue) -> None:
        """Remove a key at any position. It must be in the queue."""
        del self._queues[key_queue]

    def unleased(self) -> list[KeyQueue]:
        """Return the keys that have a message to deliver and no lease."""
        return [key_queue for key_queue in self._queues if not key_queue.is_leased]


class Consumer:
    """A consumer of messages: an open streaming pull, a waiting Pull call or a push endpoint.

    Attributes:
        ack_deadline: Seconds that a lease granted to it lasts.
        max_messages: Maximum number of outstanding messages; 0 or less means no limit.
        max_bytes: Maximum size of outstanding messages in bytes; 0 or less means no limit. The
            message that crosses the limit is still delivered, so a large message cannot block the
            consumer forever.
        is_pull: Whether it is a Pull call. The number of Pull calls that wait is limited.
        is_push: Whether it sends messages to the endpoint of a push subscription.
        wake: Called after an empty take, when there may be messages or `closed` was set. It must
            only record the call and must not call the engine, which is in the middle of its work.
        closed: The error with which the subscription ends the consumer; None while it is open.
        is_here: Whether it has joined and not left.
        client: Name of the program that consumes, for people; may be empty.
        ready_keys: The keys of which it holds leases and that have more to deliver. Only this
            consumer may take them.
        asleep: Whether its last take was empty and it has not been woken since.
        outstanding_messages: Number of messages that it holds.
        outstanding_bytes: Their size in bytes.
        held: The ack IDs of the messages that it holds by single leases, and of some that it held,
            oldest first.
        runs: The runs of leases that it holds.
        changed: The consumers that sleep and have got room or a key, of its subscription.
    """

    __slots__ = (
        "ack_deadline",
        "asleep",
        "changed",
        "client",
        "closed",
        "held",
        "is_here",
        "is_pull",
        "is_push",
        "max_bytes",
        "max_messages",
        "outstanding_bytes",
        "outstanding_messages",
        "ready_keys",
        "runs",
        "wake",
    )

    def __init__(
        self,
        *,
        ack_deadline: int,
        wake: Callable[[], None],
        max_messages: int = 0,
        max_bytes: int = 0,
        is_pull: bool = False,
        is_push: bool = False,
        client: str = "",
    ) -> None:
        self.client = client
        self.ack_deadline = ack_deadline
        self.wake = wake
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.is_pull = is_pull
        self.is_push = is_push
        self.outstanding_messages = 0
        self.outstanding_bytes = 0
        self.ready_keys = ReadyKeys()
        self.asleep = False
        self.closed: RpcError | None = None
        self.is_here = False
        self.held: list[str] = []
        self.runs: dict[LeaseRun, None] = {}
        self.changed: dict[Consumer, None] = {}

    def add_key(self, key_queue: KeyQueue) -> None:
        """Let it take the messages of a key, which only it may take."""
        self.ready_keys.append(key_queue)
        if self.asleep:
            self.changed[self] = None

    @property
    def has_room(self) -> bool:
        """Whether both of its limits allow a further message."""
        return self.room > 0 and self.room_bytes > 0

    @property
    def room(self) -> int:
        """Number of further messages that it wants."""
        if self.max_messages <= 0:
            return sys.maxsize
        return self.max_messages - self.outstanding_messages

    @property
    def room_bytes(self) -> float:
        """Bytes of further messages that it wants. The last message may cross this limit."""
        if self.max_bytes <= 0:
            return math.inf
        return self.max_bytes - self.outstanding_bytes


def too_early(acknowledged: set[Delivery]) -> set[Delivery]:
    """Return those of `acknowledged` that have an unfinished message of their key before them.

    An earlier message that is also in `acknowledged` does not count as unfinished.
    """
    in_order: set[Delivery] = set()
    for key_queue in {
        delivery.key_queue for delivery in acknowledged if delivery.key_queue is not None
    }:
        # Only up to the first unfinished message: a key may have thousands of leases.
        for delivery in key_queue.delivered:
            if delivery in acknowledged:
                in_order.add(delivery)
            elif not delivery.acked:
                break
    return {each for each in acknowledged - in_order if each.key_queue is not None}


@final
class LeaseRun:
    """Leases that were granted together: consecutive messages, with consecutive ack IDs.

    Attributes:
        seqs: The sequence numbers of the messages.
        ids: The numbers of the ack IDs.
        number: The number of the first lease among the leases of the subscription.
        holder: The consumer that got them.
        leased: One bit for each message that is leased as a part of this run.
        size: The size of these messages, in bytes.
        singles: The messages that have a `Delivery`, by sequence number. They may be leased as a
            part of this run, or by themselves, or wait.
    """

    __slots__ = ("holder", "ids", "leased", "number", "seqs", "singles", "size")

    def __init__(self, seqs: range, ids: range, number: int, holder: Consumer, size: int) -> None:
        self.seqs = seqs
        self.ids = ids
        self.number = number
        self.holder = holder
        self.leased = (1 << len(seqs)) - 1
        self.size = size
        self.singles: dict[int, Delivery] = {}

    def has_leased(self, seq: int) -> bool:
        """Return whether a message is leased as a part of this run."""
        return bool(self.leased >> (seq - self.seqs.start) & 1)

    @property
    def oldest_number(self) -> int:
        """The lowest number of its leases among the leases of the subscription."""
        return self.number + (self.leased & -self.leased).bit_length() - 1
