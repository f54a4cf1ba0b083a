"""One ordering key after a failure: when it continues, and which delivery of each message counts.

After a nack, or the end of a lease, a server redelivers the failed message. Servers differ in their
treatment of the later messages of the key that the client has already received:

- Google's service and pullstream's broker *restart the key*: they also redeliver every later
  message, in order. The earlier deliveries of these messages are stale.
- Google's Java emulator redelivers only the failed message. The earlier deliveries stay valid.

The rules here work with both. The client keeps the later messages leased and does not run them. It
does not nack them: a nack would count as a delivery attempt of a message that no callback has seen.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pullstream.message import Disposition, Message, ack_is_tracked

from .sorted_keys import SortedKeys

# A key waits for its failed message: WAIT_FACTOR times the duration of the slowest recent
# redelivery, and at least MIN_WAIT seconds. The backoff of a retry policy doubles with each
# attempt.
WAIT_FACTOR = 3.0
MIN_WAIT = 5.0

# The wait before the first redelivery has been observed, in seconds.
FIRST_WAIT = 60.0

# A message may arrive during the wait when no message of its key is held. Then the server may have
# restarted the key at another subscriber before it sent this message. The key returns the message
# after this many seconds to find out.
PROBE_AFTER = 1.0

# A delivery may wait this many seconds for the reader's thread without any sign, if the machine is
# busy. The answer to a nack has its own connection and may overtake it.
READER_DELAY = 1.0

# Number of recent redeliveries that count.
_REMEMBERED = 20

_Position = tuple[int, int, int, str]


def position_of(message: Message) -> _Position:
    """Return the position of a message in its key, which is the same for each of its deliveries.

    It is the order of publishing. The ids of messages that were published together are increasing
    numbers. The order of receipt cannot be used: after a reconnect there may be deliveries of one
    message before and after another message.
    """
    seconds, nanos = message.published
    message_id = message.message_id
    return seconds, nanos, len(message_id), message_id


@dataclass(slots=True)
class Actions:
    """Actions on messages that follow from a change of the hold.

    Attributes:
        run: Messages whose callback must start.
        forget: Deliveries that a newer delivery replaces or will replace. Their leases end here
            without a request to the server.
        acknowledge: Deliveries to acknowledge, because a callback handled an earlier delivery of
            the message.
        give_back: Messages to return to the server; no callback has seen them.
        return_dropped: Dropped messages to return to the server.
        parked: Change in the number of parked messages.
        parked_bytes: Change in the bytes of the parked messages.
        due: End of a wait that has begun, in seconds on the clock; None if no wait has begun.
    """

    run: list[Message] = field(default_factory=list)
    forget: list[Message] = field(default_factory=list)
    acknowledge: list[Message] = field(default_factory=list)
    give_back: list[Message] = field(default_factory=list)
    return_dropped: list[Message] = field(default_factory=list)
    parked: int = 0
    parked_bytes: int = 0
    due: float | None = None


class Redeliveries:
    """The redelivery behaviour of one subscription's server, as observed.

    Args:
        wait: Seconds that a key waits for its failed message. None: learn the time.

    Attributes:
        restart_keys: Whether the server has redelivered later messages of a failed key.
    """

    def __init__(self, wait: float | None = None) -> None:
        self._wait = wait
        self._delays: deque[float] = deque(maxlen=_REMEMBERED)
        self.restart_keys = False

    def observe(self, delay: float) -> None:
        """Record that a redelivery arrived `delay` seconds after the server accepted the nack."""
        self._delays.append(max(delay, 0.0))

    def wait(self, last_delay: float) -> float:
        """Return the seconds to wait for a failed message.

        Args:
            last_delay: Duration of the key's last redelivery in seconds; 0 before the first one.
        """
        if self._wait is not None:
            return self._wait
        if not self._delays and not last_delay:
            return FIRST_WAIT
        return max(MIN_WAIT, WAIT_FACTOR * max(last_delay, *self._delays))


@dataclass(slots=True)
class _Held:
    """A message that is held here.

    Attributes:
        message: Its last delivery.
        number: How many deliveries the key had held before.
    """

    message: Message
    number: int


@dataclass(slots=True)
class _Missing:
    """A message that was not handled and is not held here.

    Attributes:
        place: The position of the message in its key.
        ack_id: Ack id of its last delivery to this client.
        received_at: When that delivery was read.
        comes_at: Earliest time of its redelivery; infinite until the server has accepted the nack.
    """

    place: _Position
    ack_id: str
    received_at: float
    comes_at: float = math.inf


class MissingMessages:
    """The missing messages of a key, and the times of their redeliveries. Not thread-safe.

    Each method takes nearly constant time, because a key may miss thousands of messages, and a
    server redelivers them one by one.

    Args:
        key: The ordering key.
        nacks: The keys of nacks that the server has not accepted yet, by ack id, of all keys. This
            class adds and removes the nacks of its messages.
    """

    def __init__(self, key: str, nacks: dict[str, str]) -> None:
        self._key = key
        self._nacks = nacks
        self._by_id: dict[str, _Missing] = {}
        self._unanswered: dict[str, _Missing] = {}
        self._places: SortedKeys[_Position] = SortedKeys()
        # The places of messages that the server may not have redelivered yet, when last looked at.
        self._to_come: SortedKeys[_Position] = SortedKeys()
        # The times of redeliveries after an accepted nack.
        self._times: SortedKeys[tuple[float, _Position]] = SortedKeys()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._by_id

    @property
    def first(self) -> _Position | None:
        """The position of the earliest missing message; None if no message is missing."""
        return self._places.first

    @property
    def latest(self) -> float:
        """Earliest time by which the server may have redelivered all missing messages."""
        if self._unanswered:
            return math.inf
        last = self._times.last
        return -math.inf if last is None else last[0]

    @property
    def are_answered(self) -> bool:
        """Whether the server has accepted all nacks and returns."""
        return not self._unanswered

    def add(self, message: Message, place: _Position) -> None:
        """Add a message whose nack or return is about to be sent."""
        self.pop(message.message_id)
        missing = _Missing(place, message.ack_id, message.batch.received_at)
        self._by_id[message.message_id] = missing
        self._unanswered[missing.ack_id] = missing
        self._nacks[missing.ack_id] = self._key
        self._places.add(place)
        self._to_come.add(place)

    def pop(self, message_id: str) -> _Missing | None:
        """Remove a message and return it; None if it is not missing."""
        missing = self._by_id.pop(message_id, None)
        if missing is None:
            return None
        if missing.comes_at == math.inf:
            self._forget_nack(missing.ack_id)
        else:
            self._times.discard((missing.comes_at, missing.place))
        self._places.discard(missing.place)
        self._to_come.discard(missing.place)
        return missing

    def pop_before(self, place: _Position) -> None:
        """Remove the messages before a position."""
        for earlier in self._places.between(None, place):
            self.pop(earlier[-1])

    def nack_was_taken(self, ack_id: str, comes_at: float) -> None:
        """Record that the server accepted a nack, and redelivers from `comes_at` on."""
        missing = self._unanswered.get(ack_id)
        if missing is not None:
            self._forget_nack(ack_id)
            missing.comes_at = comes_at
            self._times.add((comes_at, missing.place))

    def forget_nacks(self) -> None:
        """Stop waiting for the answers of the server."""
        for ack_id in list(self._unanswered):
            self._forget_nack(ack_id)

    def received_at(self, message_id: str) -> float | None:
        """When the last delivery of a message was read; None if it is not missing."""
        missing = self._by_id.get(message_id)
        return None if missing is None else missing.received_at

    def are_due_before(self, place: _Position, time: float) -> bool:
        """Return whether a delivery was sent after the server could redeliver all earlier messages.

        Args:
            place: The position of the delivery.
            time: When it was read. Not earlier than in the last call.
        """
        sent_after = time - READER_DELAY
        while (first := self._to_come.first) is not None and first < place:
            if sent_after < self._by_id[first[-1]].comes_at:
                return False
            # This one stays due.
            self._to_come.discard(first)
        return True

    def _forget_nack(self, ack_id: str) -> None:
        self._unanswered.pop(ack_id, None)
        self._nacks.pop(ack_id, None)


class FailedKey:
    """The state of an ordering key from a failure until the key is in order again.

    Not thread-safe. Times are seconds on one monotonic clock.

    Messages that failed or were returned are *missing* until they are redelivered. The key *waits*:
    no message behind a missing one runs. A missing message is *gone* if the server accepted its
    nack and then redelivers a later message without it.

    Held messages run in order. A newer delivery replaces an older delivery of the same message. It
    also proves that the server restarts keys: the older deliveries of all messages behind it are
    stale, and are forgotten.

    If the server redelivers nothing within the wait, the key returns the oldest held message. The
    redelivery of that message proves that the failed message is gone. If it is not redelivered
    either, the key returns all held messages.

    Each step takes time in proportion to the messages that it runs, forgets or returns, however
    many the key holds.

    Args:
        redeliveries: The observed redelivery behaviour of the server.
        missing: The missing messages; none yet.
        number: How many keys of the subscription have failed, with this one.
        is_running: Whether a callback of the key is running.

    Attributes:
        number: The number of this failure.
        is_running: Whether a callback of the key is running or about to run.
        due: End of the wait; None if no action is due then.
        held_bytes: Bytes of the held messages.
    """

    def __init__(
        self, redeliveries: Redeliveries, missing: MissingMessages, *, number: int, is_running: bool
    ) -> None:
        self._redeliveries = redeliveries
        self._missing = missing
        self.number = number
        self.is_running = is_running
        self.due: float | None = None
        self.held_bytes = 0
        # By message id, and their positions in order.
        self._held: dict[str, _Held] = {}
        self._places: SortedKeys[_Position] = SortedKeys()
        # Every message id that was received before the failure or since.
        self._seen: set[str] = set()
        # Deliveries with a smaller number are old: they were received before a missing message was
        # redelivered. `_old` counts the old deliveries that are held.
        self._deliveries = 0
        self._old_below = 0
        self._old = 0
        # Ids of old deliveries whose callback runs.
        self._running_old: set[str] = set()
        # Ids of messages that a callback has handled and the server may redeliver.
        self._handled: set[str] = set()
        # Ids of messages that failed, were redelivered, and have not been handled; and the duration
        # of the last such redelivery, in seconds.
        self._retried: set[str] = set()
        self._last_delay = 0.0
        # Whether a later message was redelivered at a moment when that proves nothing.
        self._is_in_doubt = False
        self._has_probed = False
        self._gave_up = False

    def __len__(self) -> int:
        """Return the number of held messages."""
        return len(self._held)

    @property
    def held(self) -> list[Message]:
        """The held messages, in order."""
        return self._at(self._places.head(len(self)))

    @property
    def is_waiting(self) -> bool:
        """Whether a message is missing, so that no message behind it may run."""
        return len(self._missing) > 0

    @property
    def parked(self) -> int:
        """Number of messages that are held until a missing one is redelivered."""
        return len(self) if self.is_waiting else 0

    @property
    def parked_bytes(self) -> int:
        """Bytes of the parked messages."""
        return self.held_bytes if self.is_waiting else 0

    def is_parked(self, message: Message) -> bool:
        """Return whether this delivery of a message is parked."""
        return self.is_waiting and self._holds(message)

    @property
    def can_make_room(self) -> bool:
        """Whether `give_back_all` would return messages."""
        last = self._places.last
        return last is not None and self._is_blocked(last)

    @property
    def is_idle(self) -> bool:
        """Whether no message of the key is here."""
        return not (self.is_running or self._held)

    @property
    def is_over(self) -> bool:
        """Whether the key is in order, and the failure can be forgotten."""
        is_in_order = not (self.is_waiting or self._retried)
        return is_in_order and not (self._old or self._running_old or self._handled)

    # ---- failures ------------------------------------------------------------------------------

    def fail(self, message: Message, actions: Actions) -> None:
        """Record that a message was not handled and will be redelivered.

        The delivery may be older than the last one. With exactly-once delivery it may also be
        newer: its receipt was refused before it arrived here.
        """
        message_id, place = message.message_id, position_of(message)
        received_at = message.batch.received_at
        self._seen.add(message_id)
        returned_at = self._missing.received_at(message_id)
        if returned_at is not None and received_at <= returned_at:
            # This delivery or a newer one was returned.
            return
        self._retried.discard(message_id)
        held = self._held.get(message_id)
        if held is not None:
            if received_at <= held.message.batch.received_at:
                # After a reconnect the next delivery arrived before this one failed.
                self._retried.add(message_id)
                return
            self._drop(held.message)
            actions.forget.append(held.message)
        if self._missing.first is None or place <= self._missing.first:
            self.due, self._has_probed, self._gave_up, self._is_in_doubt = None, False, False, False
        self._miss(message, place)

    def nack_was_taken(self, ack_id: str, comes_at: float) -> None:
        """Record that the server accepted a nack or return, and redelivers from `comes_at` on."""
        self._missing.nack_was_taken(ack_id, comes_at)
        if self.is_waiting and self._missing.are_answered and not self._gave_up:
            if self._is_in_doubt:
                self.due = self._missing.latest + PROBE_AFTER
            elif self.due is None:
                self._wait()

    def forget_nacks(self) -> None:
        """Stop waiting for the answers of the server, because this key is forgotten."""
        self._missing.forget_nacks()

    def handled(self, message: Message, actions: Actions) -> None:
        """Record that a callback handled a message that the server may still redeliver.

        The next delivery is acknowledged without a callback, except if the user tracks the
        acknowledgement: that may fail, and then the message must run again.
        """
        message_id = message.message_id
        self._seen.add(message_id)
        if ack_is_tracked(message):
            return
        self._handled.add(message_id)
        copy = self._held.get(message_id)
        if copy is not None:
            self._drop(copy.message)
            actions.acknowledge.append(copy.message)

    # ---- messages ------------------------------------------------------------------------------

    def hold(self, messages: Iterable[Message], actions: Actions) -> None:
        """Hold messages that were received before the failure, or that cannot run yet."""
        for message in messages:
            self._put(message, position_of(message), actions)
            self._seen.add(message.message_id)

    def receive(self, message: Message, now: float, actions: Actions) -> None:
        """Handle a delivery that has arrived."""
        message_id, place = message.message_id, position_of(message)
        is_new = message_id not in self._seen
        was_missing = message_id in self._missing
        if was_missing:
            self._come_again(message_id, now)
        if not is_new:
            self._find_gone(message, place, now, actions)
        if self._gave_up and self._is_blocked(place):
            self._give_back(message, actions)
        elif message_id in self._handled:
            actions.acknowledge.append(message)
        else:
            if is_new and self._is_blocked(place):
                self._look_at_new(now)
            self._put(message, place, actions)
        if not (is_new or was_missing or self.is_waiting):
            self._forget_behind(place, actions)
        elif is_new and not (self._old or self.is_waiting):
            # Redelivered messages arrive before new ones.
            self._handled.clear()
        self._seen.add(message_id)

    def _find_gone(self, message: Message, place: _Position, now: float, actions: Actions) -> None:
        """Find out from a redelivery whether earlier missing messages are gone.

        They are gone if the server accepted their nacks before it sent this delivery. Otherwise the
        server may have sent the delivery because the lease of this message expired. Two cases
        therefore prove nothing:

        - The delivery was possibly sent before the server accepted the nacks and returns: it was
          read before their answers or less than READER_DELAY after them, or it may have waited
          unread for a long time. The key returns the first held message after PROBE_AFTER. The
          redelivery of that message was sent after the server had accepted the nacks.
        - Earlier messages are held behind a missing one. They may have been handled elsewhere. Or
          the server did not redeliver them because their leases continue. The key returns them: in
          the second case they are redelivered, before this message.
        """
        if not self._is_blocked(place):
            return
        batch = message.batch
        if batch.may_be_stale or not self._missing.are_due_before(place, batch.received_at):
            self._is_in_doubt = True
            # Hold it for a moment. If the key returned it at once, the server might send it again
            # and again before a redelivery can prove anything, and count each return.
            self._gave_up = self._has_probed = False
            if self._missing.are_answered:
                probe_at = max(self._missing.latest, now) + PROBE_AFTER
                self.due = probe_at if self.due is None else min(self.due, probe_at)
        elif held := self._blocked(before=place):
            self._is_in_doubt = True
            self._give_back_held(held, actions)
        else:
            self._missing.pop_before(place)
            self._look_at_missing()

    def _look_at_new(self, now: float) -> None:
        """Handle a message that arrives for the first time, behind a missing one."""
        if self.due is not None and not self._held and self._redeliveries.restart_keys:
            # The server has accepted the nacks and restarts keys. Either it sent this message
            # earlier, or the missing message was handled elsewhere. Returning the message is
            # allowed in both cases and shows which case it is.
            self.due = min(self.due, now + PROBE_AFTER)

    def _come_again(self, message_id: str, now: float) -> None:
        """Handle the redelivery of a missing message."""
        first = self._missing.first
        missing = self._missing.pop(message_id)
        if missing is not None and missing.place == first:
            self._last_delay = max(now - missing.comes_at, 0.0)
            self._redeliveries.observe(self._last_delay)
        self._retried.add(message_id)
        self._look_at_missing()

    def _look_at_missing(self) -> None:
        """Update the wait after missing messages were redelivered, or are gone."""
        self._is_in_doubt = self._gave_up = self._has_probed = False
        self.due = None
        if not self.is_waiting:
            self._old_below, self._old = self._deliveries, len(self)
        elif self._missing.are_answered:
            self._wait()

    def _wait(self) -> None:
        self.due = self._missing.latest + self._redeliveries.wait(self._last_delay)

    def _forget_behind(self, place: _Position, actions: Actions) -> None:
        """Forget the messages behind a redelivered one, because the server redelivers them, too."""
        self._redeliveries.restart_keys = True
        for message in self._at(self._places.between(place, None)):
            self._drop(message)
            actions.forget.append(message)

    # ---- turns ---------------------------------------------------------------------------------

    def next(self) -> Message | None:
        """Begin the turn of the next message and return it; None if no message may run."""
        first = self._places.first
        if self.is_running or first is None or self._is_blocked(first):
            return None
        message = self._held[first[-1]].message
        self._begin(message)
        self.is_running = True
        return message

    def joining(self, message: Message) -> int:
        """Return how many held messages may share the turn of the running message.

        No message may share the turn of one that has failed before. If a callback fails for several
        messages at once, running each message alone shows which of them it cannot handle.
        """
        may_share = not self.is_waiting and message.message_id not in self._retried
        return len(self) if may_share else 0

    def join(self, message: Message, limit: int) -> list[Message]:
        """Take up to `limit` held messages, which share the turn of the running message."""
        joining = self._at(self._places.head(min(limit, self.joining(message))))
        for each in joining:
            self._begin(each)
        return joining

    def ended(self, message: Message, actions: Actions) -> None:
        """Record that the turn of a message is over."""
        self.is_running = False
        message_id = message.message_id
        may_come_again = message_id in self._running_old or message_id in self._held
        self._running_old.discard(message_id)
        if message.settled is Disposition.ACK and may_come_again:
            # Its lease may have been stale. Then it is redelivered, or has been already.
            self.handled(message, actions)
        if message_id not in self._held:
            self._retried.discard(message_id)

    def remove(self, message: Message) -> bool:
        """Stop holding a message, and return whether it was held."""
        is_held = self._holds(message)
        if is_held:
            self._drop(message)
        return is_held

    # ---- the end of the wait -------------------------------------------------------------------

    def wait_is_over(self, actions: Actions) -> None:
        """Return messages to the server, because no redelivery came in time."""
        blocked = self._blocked()
        if blocked and not self._has_probed:
            self._has_probed = True
            self._is_in_doubt = False
            del blocked[1:]
        else:
            self._gave_up = True
        self.due = None
        self._give_back_held(blocked, actions)

    def give_back_all(self, actions: Actions) -> None:
        """Return all messages that wait for a missing one, to make room."""
        self.due, self._gave_up = None, True
        self._give_back_held(self._blocked(), actions)

    def _give_back_held(self, messages: Iterable[Message], actions: Actions) -> None:
        for message in messages:
            self._drop(message)
            self._give_back(message, actions)

    def _give_back(self, message: Message, actions: Actions) -> None:
        self._seen.add(message.message_id)
        self._miss(message, position_of(message))
        actions.give_back.append(message)

    def _miss(self, message: Message, place: _Position) -> None:
        self._missing.add(message, place)
        self._old_below = self._old = 0

    # ---- the held messages ---------------------------------------------------------------------

    def _is_blocked(self, place: _Position) -> bool:
        first = self._missing.first
        return first is not None and place > first

    def _blocked(self, before: _Position | None = None) -> list[Message]:
        """Return the held messages behind the first missing one, and before a position."""
        first = self._missing.first
        if first is None:
            return []
        return self._at(self._places.between(first, before))

    def _at(self, places: Iterable[_Position]) -> list[Message]:
        return [self._held[place[-1]].message for place in places]

    def _holds(self, message: Message) -> bool:
        held = self._held.get(message.message_id)
        return held is not None and held.message is message

    def _put(self, message: Message, place: _Position, actions: Actions) -> None:
        """Hold a message at its position, and replace an older delivery of it."""
        older = self._held.get(message.message_id)
        if older is not None:
            self._drop(older.message)
            actions.forget.append(older.message)
        self._held[message.message_id] = _Held(message, self._deliveries)
        self._deliveries += 1
        self._places.add(place)
        self.held_bytes += message.batch.bytes_each

    def _begin(self, message: Message) -> None:
        if self._held[message.message_id].number < self._old_below:
            self._running_old.add(message.message_id)
        self._drop(message)

    def _drop(self, message: Message) -> None:
        held = self._held.pop(message.message_id)
        self._old -= held.number < self._old_below
        self._places.discard(position_of(message))
        self.held_bytes -= message.batch.bytes_each
