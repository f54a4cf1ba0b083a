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

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from pullstream.message import Disposition, Message, ack_is_tracked

from .key_messages import HeldMessages, MissingMessages, Position, position_of

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

# Number of recent redeliveries that count.
_REMEMBERED = 20


@dataclass(slots=True)
class Actions:
    """Actions on messages that follow from a change of the hold.

    Attributes:
        run: Messages whose callback must start.
        forget: Deliveries that a newer delivery replaces or will replace. Their leases end here
            without a request to the server.
        acknowledge: Deliveries to acknowledge, because a callback handled an earlier delivery of
            the message.
        to_return: Messages to return to the server; no callback has seen them.
        return_dropped: Dropped messages to return to the server.
        parked: Change in the number of parked messages.
        parked_bytes: Change in the bytes of the parked messages.
        due: End of a wait that has begun, in seconds on the clock; None if no wait has begun.
    """

    run: list[Message] = field(default_factory=list)
    forget: list[Message] = field(default_factory=list)
    acknowledge: list[Message] = field(default_factory=list)
    to_return: list[Message] = field(default_factory=list)
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
        """Record that a redelivery arrived `delay` seconds after it was due; negative: earlier."""
        self._delays.append(delay)

    def wait(self, last_delay: float) -> float:
        """Return the seconds to wait for a failed message.

        Args:
            last_delay: Duration of the key's last redelivery in seconds; 0 before the first one.
        """
        if self._wait is not None:
            return self._wait
        if not self._delays:
            return FIRST_WAIT
        return max(MIN_WAIT, WAIT_FACTOR * max(last_delay, *self._delays))


class KeyState(Enum):
    """State of a failed key.

    Attributes:
        IN_ORDER: No message is missing.
        NACKED: Messages are missing, and the server has not accepted all nacks and returns.
        WAITING: The server has accepted them. Their redeliveries may come.
        IN_DOUBT: A later message was redelivered at a moment when that proves nothing.
        PROBED: The wait was over, and the key has returned its first held message.
        PROBED_IN_DOUBT: The same, and then messages before a redelivered one were returned.
        GAVE_UP: The key has returned all messages behind the first missing one. It does not hold
            later ones.
    """

    IN_ORDER = "in order"
    NACKED = "nacked"
    WAITING = "waiting"
    IN_DOUBT = "in doubt"
    PROBED = "probed"
    PROBED_IN_DOUBT = "probed, in doubt"
    GAVE_UP = "gave up"


# After a failure, a redelivery or a lack of room, which may come in each state with a wait.
_RESTARTS = frozenset(KeyState) - {KeyState.PROBED, KeyState.PROBED_IN_DOUBT}

NEXT: dict[KeyState, frozenset[KeyState]] = {
    KeyState.IN_ORDER: frozenset({KeyState.NACKED}),
    KeyState.NACKED: _RESTARTS,
    KeyState.WAITING: _RESTARTS | {KeyState.PROBED},
    KeyState.IN_DOUBT: _RESTARTS | {KeyState.PROBED},
    KeyState.PROBED: _RESTARTS | {KeyState.PROBED_IN_DOUBT},
    KeyState.PROBED_IN_DOUBT: _RESTARTS,
    KeyState.GAVE_UP: _RESTARTS,
}


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
        state: The state; only methods of this class change it.
        due: End of the wait; None if no action is due then.
    """

    def __init__(
        self, redeliveries: Redeliveries, missing: MissingMessages, *, number: int, is_running: bool
    ) -> None:
        self._redeliveries = redeliveries
        self._missing = missing
        self._held = HeldMessages()
        self.number = number
        self.is_running = is_running
        self.state = KeyState.IN_ORDER
        self.due: float | None = None
        # Every message id that was received before the failure or since.
        self._seen: set[str] = set()
        # Ids of messages whose callback runs for an old delivery: one that was received before a
        # missing message was redelivered.
        self._running_old: set[str] = set()
        # Ids of messages that a callback has handled and the server may redeliver.
        self._handled: set[str] = set()
        # Ids of messages that failed, were redelivered, and have not been handled; and the delay
        # of the last such redelivery, in seconds.
        self._retried: set[str] = set()
        self._last_delay = 0.0

    def __len__(self) -> int:
        """Return the number of held messages."""
        return len(self._held)

    @property
    def held(self) -> list[Message]:
        """The held messages, in order."""
        return self._held.head(len(self))

    @property
    def is_waiting(self) -> bool:
        """Whether a message is missing, so that no message behind it may run."""
        return self.state is not KeyState.IN_ORDER

    @property
    def parked(self) -> int:
        """Number of messages that are held until a missing one is redelivered."""
        return len(self) if self.is_waiting else 0

    @property
    def parked_bytes(self) -> int:
        """Bytes of the parked messages."""
        return self._held.bytes if self.is_waiting else 0

    def is_parked(self, message: Message) -> bool:
        """Return whether this delivery of a message is parked."""
        return self.is_waiting and self._held.get(message.message_id) is message

    @property
    def can_make_room(self) -> bool:
        """Whether `return_all` would return messages."""
        last = self._held.last
        return last is not None and self._is_blocked(last)

    @property
    def is_idle(self) -> bool:
        """Whether no message of the key is here."""
        return not (self.is_running or len(self))

    @property
    def is_over(self) -> bool:
        """Whether the key is in order, and the failure can be forgotten."""
        is_in_order = not (self.is_waiting or self._retried)
        return is_in_order and not (self._held.old or self._running_old or self._handled)

    # ---- failures ------------------------------------------------------------------------------

    def fail(self, message: Message, actions: Actions) -> None:
        """Record that a message was not handled and will be redelivered.

        The delivery may be older than the last one. With exactly-once delivery it may also be
        newer: its receipt was refused before it arrived here.
        """
        message_id, position = message.message_id, position_of(message)
        received_at = message.batch.received_at
        self._seen.add(message_id)
        returned_at = self._missing.received_at(message_id)
        if returned_at is not None and received_at <= returned_at:
            # This delivery or a newer one was returned.
            return
        self._retried.discard(message_id)
        held = self._held.get(message_id)
        if held is not None:
            if received_at <= held.batch.received_at:
                # After a reconnect the next delivery arrived before this one failed.
                self._retried.add(message_id)
                return
            self._held.remove(held)
            actions.forget.append(held)
        if self._missing.first is None or position <= self._missing.first:
            self._move(KeyState.NACKED)
        self._miss(message, position)

    def nack_was_accepted(self, ack_id: str, comes_at: float) -> None:
        """Record that the server accepted a nack or return, and redelivers from `comes_at` on."""
        self._missing.nack_was_accepted(ack_id, comes_at)
        if not self._missing.are_answered:
            return
        if self.state is KeyState.NACKED:
            self._move(KeyState.WAITING, self._end_of_wait())
        elif self.state in (KeyState.IN_DOUBT, KeyState.PROBED_IN_DOUBT):
            self.due = self._missing.latest + PROBE_AFTER
        elif self.state is KeyState.PROBED and self.due is None:
            self.due = self._end_of_wait()

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
            self._held.remove(copy)
            actions.acknowledge.append(copy)

    # ---- messages ------------------------------------------------------------------------------

    def hold(self, messages: Iterable[Message], actions: Actions) -> None:
        """Hold messages that were received before the failure, or that cannot run yet."""
        for message in messages:
            self._put(message, position_of(message), actions)
            self._seen.add(message.message_id)

    def receive(self, message: Message, now: float, actions: Actions) -> None:
        """Handle a delivery that has arrived."""
        message_id, position = message.message_id, position_of(message)
        is_new = message_id not in self._seen
        was_missing = message_id in self._missing
        if was_missing:
            self._come_again(message_id, now)
        if not is_new:
            self._find_gone(message, position, now, actions)
        is_blocked = self._is_blocked(position)
        if is_blocked and self.state is KeyState.GAVE_UP:
            self._put(message, position, actions)
            self._return([message], actions)
        elif message_id in self._handled:
            actions.acknowledge.append(message)
        else:
            if is_blocked and is_new:
                self._probe_new(now)
            self._put(message, position, actions)
        if not (is_new or was_missing or self.is_waiting):
            self._forget_behind(position, actions)
        elif is_new and not (self._held.old or self.is_waiting):
            # Redelivered messages arrive before new ones.
            self._handled.clear()
        self._seen.add(message_id)

    def _find_gone(
        self, message: Message, position: Position, now: float, actions: Actions
    ) -> None:
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
        if not self._is_blocked(position):
            return
        batch = message.batch
        if batch.may_be_stale or not self._missing.are_due_before(position, batch.received_at):
            # Hold it for a moment. If the key returned it at once, the server might send it again
            # and again before a redelivery can prove anything, and count each return.
            due = self.due
            if self._missing.are_answered:
                probe_at = max(self._missing.latest, now) + PROBE_AFTER
                due = probe_at if due is None else min(due, probe_at)
            self._move(KeyState.IN_DOUBT, due)
        elif held := self._blocked(before=position):
            if self.state in (KeyState.NACKED, KeyState.WAITING):
                self._move(KeyState.IN_DOUBT, self.due)
            elif self.state is KeyState.PROBED:
                self._move(KeyState.PROBED_IN_DOUBT, self.due)
            self._return(held, actions)
        else:
            self._missing.pop_before(position)
            self._restart_wait()

    def _probe_new(self, now: float) -> None:
        """Shorten the wait for a message that arrives for the first time, behind a missing one."""
        if self.due is not None and not self._held and self._redeliveries.restart_keys:
            # The server has accepted the nacks and restarts keys. Either it sent this message
            # earlier, or the missing message was handled elsewhere. Returning the message is
            # allowed in both cases and shows which case it is.
            self.due = min(self.due, now + PROBE_AFTER)

    def _come_again(self, message_id: str, now: float) -> None:
        """Handle the redelivery of a missing message."""
        first = self._missing.first
        missing = self._missing.pop(message_id)
        if missing is not None and missing.position == first:
            self._last_delay = now - missing.comes_at
            self._redeliveries.observe(self._last_delay)
        self._retried.add(message_id)
        self._restart_wait()

    def _restart_wait(self) -> None:
        """Move to the next state after missing messages were redelivered, or are gone."""
        if not self._missing:
            self._move(KeyState.IN_ORDER)
            self._held.mark_old()
        elif self._missing.are_answered:
            self._move(KeyState.WAITING, self._end_of_wait())
        else:
            self._move(KeyState.NACKED)

    def _end_of_wait(self) -> float:
        return self._missing.latest + self._redeliveries.wait(self._last_delay)

    def _move(self, to: KeyState, due: float | None = None) -> None:
        if to not in NEXT[self.state]:
            raise RuntimeError(f"{to} cannot follow {self.state}")
        self.state, self.due = to, due

    def _forget_behind(self, position: Position, actions: Actions) -> None:
        """Forget the messages behind a redelivered one, because the server redelivers them, too."""
        self._redeliveries.restart_keys = True
        for message in self._held.between(position, None):
            self._held.remove(message)
            actions.forget.append(message)

    # ---- turns ---------------------------------------------------------------------------------

    def next(self) -> Message | None:
        """Begin the turn of the next message and return it; None if no message may run."""
        first = self._held.first
        if self.is_running or first is None or self._is_blocked(first):
            return None
        self.is_running = True
        return self._begin(1)[0]

    def joining(self, message: Message) -> int:
        """Return how many held messages may share the turn of the running message.

        No message may share the turn of one that has failed before. If a callback fails for several
        messages at once, running each message alone shows which of them it cannot handle.
        """
        may_share = not self.is_waiting and message.message_id not in self._retried
        return len(self) if may_share else 0

    def join(self, message: Message, limit: int) -> list[Message]:
        """Take up to `limit` held messages, which share the turn of the running message."""
        return self._begin(min(limit, self.joining(message)))

    def ended(self, message: Message, actions: Actions) -> None:
        """Record that the turn of a message is over."""
        self.is_running = False
        message_id = message.message_id
        may_come_again = message_id in self._running_old or self._held.get(message_id) is not None
        self._running_old.discard(message_id)
        if message.settled is Disposition.ACK and may_come_again:
            # Its lease may have been stale. Then it is redelivered, or has been already.
            self.handled(message, actions)
        if self._held.get(message_id) is None:
            self._retried.discard(message_id)

    def remove(self, message: Message) -> None:
        """Stop holding this delivery of a message, if it is held."""
        if self._held.get(message.message_id) is message:
            self._held.remove(message)

    # ---- the end of the wait -------------------------------------------------------------------

    def wait_is_over(self, actions: Actions) -> None:
        """Return messages to the server, because no redelivery came in time."""
        blocked = self._blocked()
        if blocked and self.state in (KeyState.WAITING, KeyState.IN_DOUBT):
            self._move(KeyState.PROBED)
            self._return(blocked[:1], actions)
        else:
            self.return_all(actions)

    def return_all(self, actions: Actions) -> None:
        """Return all messages that wait for a missing one, also to make room."""
        self._move(KeyState.GAVE_UP)
        self._return(self._blocked(), actions)

    def _return(self, messages: Iterable[Message], actions: Actions) -> None:
        for message in messages:
            self._held.remove(message)
            self._miss(message, position_of(message))
            actions.to_return.append(message)

    def _miss(self, message: Message, position: Position) -> None:
        self._missing.add(message, position)
        self._held.mark_new()

    # ---- the held messages ---------------------------------------------------------------------

    def _is_blocked(self, position: Position) -> bool:
        first = self._missing.first
        return first is not None and position > first

    def _blocked(self, before: Position | None = None) -> list[Message]:
        """Return the held messages behind the first missing one, and before a position."""
        first = self._missing.first
        return [] if first is None else self._held.between(first, before)

    def _put(self, message: Message, position: Position, actions: Actions) -> None:
        older = self._held.put(message, position)
        if older is not None:
            actions.forget.append(older)

    def _begin(self, count: int) -> list[Message]:
        """Stop holding the first messages, because they run."""
        messages = self._held.head(count)
        self._running_old.update(one.message_id for one in messages if self._held.remove(one))
        return messages
