"""Rules of publishing: batches, the order of requests, retries and hedging.

No threads and no gRPC: messages come in, batches go out, and results come back.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pullstream.rpc.attempts import Attempts
from pullstream.runtime.retry_clock import RetryClock
from pullstream_protocol.due_queue import DueQueue
from pullstream_protocol.errors import RpcError

from .encoding import encode_topic
from .exceptions import PublishToPausedOrderingKeyException
from .outcome import Outcome
from .settings import BatchSettings, PublishHedging, PublishPolicy

# Limits on the requests in flight, separately for messages with and without ordering keys: messages
# without a key never wait for those with one. A server accepts about a hundred on a connection; the
# others wait inside gRPC, which is faster than a turn of our threads for each answer.
MAX_IN_FLIGHT = 1000
MAX_BYTES_IN_FLIGHT = 64_000_000

# Sequencers of topics are kept, because most programs publish to few topics again and again. From
# this number on, the ones without messages are forgotten.
KEPT_SEQUENCERS = 1000

# Budgets for hedging are counted in thousandths, because sums of fractions are not exact.
_TOKEN = 1000


class Sequencer:
    """The messages of one topic without a key, or of one topic and ordering key.

    Attributes:
        topic: Full name of the topic.
        key: The ordering key; empty for the messages without one.
        prefix: The encoded topic, with which every request begins.
        open: The batch that accepts more messages.
        waiting: With a key: full batches that wait for their turn.
        in_flight: Number of batches that were taken and have neither a result nor a pending retry.
        retrying: With a key: whether a batch waits for its retry.
        queued: With a key: whether the sequencer is in the queue of its window.
        paused_by: With a key: the error that paused the key.
    """

    __slots__ = (
        "in_flight",
        "key",
        "open",
        "paused_by",
        "prefix",
        "queued",
        "retrying",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, key: str) -> None:
        self.topic: str = topic
        self.key: str = key
        self.prefix: bytes = encode_topic(topic)
        self.open: Batch | None = None
        self.waiting: deque[Batch] = deque()
        self.in_flight: int = 0
        self.retrying: bool = False
        self.queued: bool = False
        self.paused_by: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the sequencer has no messages and need not be kept."""
        busy = self.in_flight or self.retrying or self.open or self.waiting or self.paused_by
        return not busy


class Batch:
    """Messages that are sent in one request.

    Attributes:
        sequencer: The sequencer of the messages.
        policy: How long the request is attempted.
        entries: The encoded messages.
        size: Size of the request in bytes.
        outcome: The result.
        due: Time at which an open batch is sent.
        is_counted: Whether flow control counts the messages.
        number: Distinguishes the batch from the others of its queue.
        is_awaited: Whether a caller waits for a message of the open batch.
        wanted: Whether the open batch is sent as soon as possible.
        attempts: Number of requests that were sent.
        answers_due: Number of requests that were sent and not answered.
        taken_at: Time at which the first request was sent.
    """

    __slots__ = (
        "_failures",
        "_retries",
        "answers_due",
        "attempts",
        "due",
        "entries",
        "is_awaited",
        "is_counted",
        "number",
        "outcome",
        "policy",
        "sequencer",
        "size",
        "taken_at",
        "wanted",
    )

    def __init__(
        self, sequencer: Sequencer, policy: PublishPolicy, due: float, number: int
    ) -> None:
        self.sequencer: Sequencer = sequencer
        self.policy: PublishPolicy = policy
        self.entries: list[bytes] = []
        self.size: int = len(sequencer.prefix)
        self.outcome: Outcome = Outcome()
        self.due: float = due
        self.number: int = number
        self.is_counted: bool = True
        self.is_awaited: bool = False
        self.wanted: bool = False
        self.attempts: int = 0
        self.answers_due: int = 0
        self.taken_at: float = 0.0
        self._retries: RetryClock | None = None
        self._failures: Attempts | None = None

    def attempt_failed(self, error: BaseException) -> None:
        """Add to the error of an attempt whether an earlier one may have succeeded."""
        if isinstance(error, RpcError):
            self._failures = self._failures or Attempts()
            self._failures.failed(error)

    def gives_up_at(self, now: float) -> float:
        """Return the time of the last attempt if all fail. `math.inf`: there is no limit."""
        if self._retries is not None:
            return self._retries.gives_up_at
        limit = self.policy.give_up_after
        return math.inf if limit is None else now + limit

    def next_attempt(self, error: BaseException, now: float) -> float | None:
        """Return the time of a retry after an error, or None to give up."""
        policy = self.policy
        if not policy.is_retried(error):
            return None
        if self._retries is None:
            self._retries = RetryClock(
                policy.first_pause,
                policy.longest_pause,
                policy.give_up_after,
                factor=policy.factor,
            )
        return self._retries.failed(now)


class _Window:
    """The requests in flight of one kind, and the batches that may follow.

    Attributes:
        ready: Batches without a key, or sequencers with a key, in the order in which they are sent.
        retries: Batches that failed, with the times of their retries.
    """

    __slots__ = ("_bytes", "_requests", "ready", "retries")

    def __init__(self) -> None:
        self._requests = 0
        self._bytes = 0
        self.ready: deque[Batch | Sequencer] = deque()
        self.retries: DueQueue[Batch] = DueQueue()

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent."""
        return self._requests < MAX_IN_FLIGHT and self._bytes < MAX_BYTES_IN_FLIGHT

    def enter(self, batch: Batch) -> None:
        """Count a request as in flight."""
        self._requests += 1
        self._bytes += batch.size

    def leave(self, batch: Batch) -> None:
        """Count a request as answered."""
        self._requests -= 1
        self._bytes -= batch.size


class PublishQueue:
    """All messages of a publisher that have no result yet. Not thread-safe.

    A batch is open until it is full or taken. It becomes wanted when it is due, or when a caller
    waits for it and its sequencer has nothing in flight. A wanted batch is taken when there is
    room. A sequencer with a key has at most one batch in flight. A batch that is retried stays
    before the later batches of its key. Messages without a key have no order.

    Times are seconds on one monotonic clock.

    Args:
        settings: When a batch is full, and when it is due.
        on_wait: Called when a caller waits for the outcome of a batch.
        hedging: Settings of hedging, or None.
        waits_for: Returns what a batch waits for, for the error of a caller that waits too long.

    Attributes:
        batches: The batches without a result.
        sequencers: The sequencers by topic, or by topic and ordering key. Read only; the method
            `sequencer` creates them.
        sendable: Whether `next_batch` may have a batch. If False, it has only retries that are due.
    """

    def __init__(
        self,
        settings: BatchSettings,
        on_wait: Callable[[Batch], object],
        hedging: PublishHedging | None = None,
        waits_for: Callable[[Batch], str] = lambda batch: "",
    ) -> None:
        self.batches: set[Batch] = set()
        self.sendable: bool = False
        self._max_bytes, self._max_latency, self._max_messages = settings
        self._on_wait = on_wait
        self._waits_for = waits_for
        # Without a key by the topic, with one by the topic and the key.
        self.sequencers: dict[str | tuple[str, str], Sequencer] = {}
        self._sweep_at = KEPT_SEQUENCERS
        self._unkeyed = _Window()
        self._keyed = _Window()
        # Open batches in the order of their times, and some that are no longer open.
        self._by_due: deque[Batch] = deque()
        self._numbers = itertools.count()
        self._hedging = hedging
        self._hedges: deque[tuple[float, Batch]] = deque()
        self._tokens = hedging.max_tokens * _TOKEN if hedging else 0

    @property
    def messages(self) -> int:
        """Number of messages without a result. It is counted, so that no Ctrl-C leaves it wrong."""
        return sum(len(batch.entries) for batch in self.batches)

    # ---- messages in ---------------------------------------------------------------------------

    def sequencer(self, topic: str, key: str = "") -> Sequencer:
        """Return the sequencer of a topic and key. It is created if necessary."""
        name = (topic, key) if key else topic
        sequencer = self.sequencers.get(name)
        if sequencer is None:
            if len(self.sequencers) >= self._sweep_at:
                self._forget_idle()
            sequencer = self.sequencers[name] = Sequencer(topic, key)
        return sequencer

    def _forget_idle(self) -> None:
        """Forget the sequencers without messages; the next search is at twice their number."""
        for name in [name for name, each in self.sequencers.items() if each.is_idle]:
            del self.sequencers[name]
        self._sweep_at = max(KEPT_SEQUENCERS, 2 * len(self.sequencers))

    def add(
        self, sequencer: Sequencer, entry: bytes, policy: PublishPolicy, time: Callable[[], float]
    ) -> Batch:
        """Add a message to the open batch of its sequencer; return the batch.

        Args:
            sequencer: The sequencer, which is not paused.
            entry: The encoded message.
            policy: How long to attempt the request.
            time: Returns the time. Called for the first message of a batch.
        """
        size = len(entry)
        batch = sequencer.open
        if batch is not None and (
            batch.size + size > self._max_bytes
            or (batch.policy is not policy and batch.policy != policy)
        ):
            self._seal(batch)
            batch = None
        if batch is None:
            batch = sequencer.open = self._new_batch(sequencer, policy, time() + self._max_latency)
            if self._max_latency < math.inf:
                self._by_due.append(batch)
        batch.entries.append(entry)
        batch.size += size
        if len(batch.entries) >= self._max_messages or batch.size >= self._max_bytes:
            self._seal(batch)
        return batch

    def add_full(
        self, sequencer: Sequencer, entries: Sequence[bytes], size: int, policy: PublishPolicy
    ) -> Batch:
        """Add a batch that is sent as it is, after the earlier messages of its sequencer.

        Args:
            sequencer: The sequencer, which is not paused.
            entries: The encoded messages.
            size: Size of all entries in bytes.
            policy: How long to attempt the request.
        """
        if sequencer.key and sequencer.open is not None:
            self._seal(sequencer.open)
        batch = self._new_batch(sequencer, policy, 0.0)
        batch.is_counted = False
        batch.entries += entries
        batch.size += size
        self._make_ready(batch)
        return batch

    def _new_batch(self, sequencer: Sequencer, policy: PublishPolicy, due: float) -> Batch:
        batch = Batch(sequencer, policy, due, next(self._numbers))
        batch.outcome.on_wait = partial(self._on_wait, batch)
        batch.outcome.waits_for = partial(self._waits_for, batch)
        self.batches.add(batch)
        return batch

    def send_soon(self, batch: Batch) -> None:
        """Send an open batch at once, or when its sequencer has nothing in flight."""
        if batch.sequencer.open is batch:
            batch.is_awaited = True
            if not batch.sequencer.in_flight:
                self._want(batch)

    def flush(self) -> None:
        """Send all open batches as soon as possible."""
        for batch in self.batches:
            if batch.sequencer.open is batch:
                self._want(batch)

    def gives_up_at(self, now: float) -> float:
        """Return when the last message is given up if all attempts fail from now on."""
        return max((batch.gives_up_at(now) for batch in self.batches), default=now)

    def expire(self, now: float) -> None:
        """Send the open batches that are due."""
        by_due = self._by_due
        while by_due and (by_due[0].sequencer.open is not by_due[0] or by_due[0].due <= now):
            batch = by_due.popleft()
            if batch.sequencer.open is batch:
                self._want(batch)

    # ---- batches out ---------------------------------------------------------------------------

    def next_batch(self, now: float) -> Batch | None:
        """Return the next batch to send, or None. `succeeded` or `failed` must follow."""
        batch = self._take(self._unkeyed, now) or self._take(self._keyed, now)
        self.sendable = batch is not None
        if batch is not None:
            batch.attempts += 1
            batch.answers_due += 1
            if self._hedging is not None and not batch.sequencer.key:
                self._hedges.append((now + self._hedging.delay, batch))
        return batch

    def next_hedge(self, now: float) -> Batch | None:
        """Return a batch whose request is slow and must be sent again now, or None.

        The batch counts as one request in flight, however often it is hedged.
        """
        while self._hedging is not None and self._hedges and self._hedges[0][0] <= now:
            _, batch = self._hedges.popleft()
            if batch.answers_due and not batch.outcome.resolved:
                self._hedges.append((now + self._hedging.delay, batch))
                if self._tokens >= _TOKEN:
                    self._tokens -= _TOKEN
                    batch.attempts += 1
                    batch.answers_due += 1
                    return batch
        return None

    def next_due(self) -> float | None:
        """Return when `expire`, `next_batch` or `next_hedge` has work, or None."""
        # Without room, the next answer leads to the next batch.
        windows = (window for window in (self._unkeyed, self._keyed) if window.has_room)
        times = [due for window in windows if (due := window.retries.next_due()) is not None]
        by_due = self._by_due
        while by_due and by_due[0].sequencer.open is not by_due[0]:
            by_due.popleft()
        if by_due:
            times.append(by_due[0].due)
        while self._hedges and self._hedges[0][1].outcome.resolved:
            self._hedges.popleft()
        if self._hedges:
            times.append(self._hedges[0][0])
        return min(times, default=None)

    def _take(self, window: _Window, now: float) -> Batch | None:
        if not window.has_room:
            return None
        batch = next(window.retries.pop_due(now), None)
        if batch is not None:
            batch.sequencer.retrying = False
        elif window.ready:
            head = window.ready.popleft()
            batch = head if isinstance(head, Batch) else self._first_of(head)
            batch.taken_at = now
        else:
            return None
        if batch.sequencer.open is batch:
            batch.sequencer.open = None
        batch.sequencer.in_flight += 1
        window.enter(batch)
        return batch

    def _first_of(self, sequencer: Sequencer) -> Batch:
        sequencer.queued = False
        if sequencer.waiting:
            return sequencer.waiting.popleft()
        # A queued sequencer has a batch.
        assert sequencer.open is not None
        return sequencer.open

    # ---- results -------------------------------------------------------------------------------

    def succeeded(self, batch: Batch) -> None:
        """Remove a batch that the server has confirmed; its sequencer may continue."""
        batch.answers_due -= 1
        if self._hedging is not None:
            refill = round(self._hedging.refill_ratio * _TOKEN)
            self._tokens = min(self._tokens + refill, self._hedging.max_tokens * _TOKEN)
        self._remove(batch)
        self._leave(batch)

    def failed(self, batch: Batch, error: BaseException, now: float) -> list[Batch] | None:
        """Record the error of a request.

        Returns:
            None if the batch is retried, or another request for it is in flight. Otherwise the
            batches that have failed: this one, and, because its key is paused now, all others of
            the key. They are removed.
        """
        batch.answers_due -= 1
        batch.attempt_failed(error)
        if batch.answers_due:
            return None
        sequencer = batch.sequencer
        due = batch.next_attempt(error, now)
        if due is not None:
            self._window(sequencer).retries.schedule(batch, due)
            sequencer.retrying = bool(sequencer.key)
            self._leave(batch)
            return None
        failed = [batch]
        self._remove(batch)
        if sequencer.key:
            sequencer.paused_by = error
            failed += sequencer.waiting
            if sequencer.open is not None:
                failed.append(sequencer.open)
            sequencer.waiting.clear()
            sequencer.open = None
            for other in failed[1:]:
                self._remove(other)
        self._leave(batch)
        return failed

    def paused(self, sequencer: Sequencer) -> PublishToPausedOrderingKeyException | None:
        """Return the error for a message of a paused key, or None if the key is not paused."""
        if sequencer.paused_by is None:
            return None
        return PublishToPausedOrderingKeyException(sequencer.key, sequencer.paused_by)

    def resume(self, topic: str, key: str) -> bool:
        """Accept messages of a paused key again; return whether the key was paused."""
        sequencer = self.sequencers.get((topic, key))
        if sequencer is None or sequencer.paused_by is None:
            return False
        sequencer.paused_by = None
        self.forget_if_idle(sequencer)
        return True

    def forget_if_idle(self, sequencer: Sequencer) -> None:
        """Drop the sequencer of a key without messages: a program may use any number of keys."""
        if sequencer.key and sequencer.is_idle:
            self.sequencers.pop((sequencer.topic, sequencer.key), None)

    def abandon(self) -> Iterator[Batch]:
        """Remove and yield all batches without a result."""
        while self.batches:
            batch = self.batches.pop()
            yield batch
        self.sequencers.clear()
        self._by_due.clear()
        self._hedges.clear()
        self._unkeyed, self._keyed = _Window(), _Window()
        self.sendable = False

    # ---- sequencers and windows ----------------------------------------------------------------

    def _window(self, sequencer: Sequencer) -> _Window:
        return self._keyed if sequencer.key else self._unkeyed

    def _seal(self, batch: Batch) -> None:
        """Accept no more messages for the open batch, and send it."""
        batch.sequencer.open = None
        # A wanted batch without a key is among the ready ones already.
        if batch.sequencer.key or not batch.wanted:
            self._make_ready(batch)

    def _want(self, batch: Batch) -> None:
        """Send the open batch as soon as possible. Until then it accepts more messages."""
        if batch.wanted:
            return
        batch.wanted = True
        if batch.sequencer.key:
            self._queue_sequencer(batch.sequencer)
        else:
            self._unkeyed.ready.append(batch)
            self.sendable = True

    def _make_ready(self, batch: Batch) -> None:
        if batch.sequencer.key:
            batch.sequencer.waiting.append(batch)
            self._queue_sequencer(batch.sequencer)
        else:
            self._unkeyed.ready.append(batch)
            self.sendable = True

    def _queue_sequencer(self, sequencer: Sequencer) -> None:
        """Put a sequencer with a key into the queue if its next batch may be sent."""
        if sequencer.queued or sequencer.in_flight or sequencer.retrying:
            return
        if sequencer.waiting or (sequencer.open is not None and sequencer.open.wanted):
            sequencer.queued = True
            self._keyed.ready.append(sequencer)
            self.sendable = True

    def _leave(self, batch: Batch) -> None:
        """Make room after an answer, and let the sequencer continue."""
        sequencer = batch.sequencer
        self._window(sequencer).leave(batch)
        sequencer.in_flight -= 1
        # The room may be for any batch.
        self.sendable = True
        if sequencer.open is not None and sequencer.open.is_awaited and not sequencer.in_flight:
            self._want(sequencer.open)
        if sequencer.key:
            self._queue_sequencer(sequencer)
            self.forget_if_idle(sequencer)

    def _remove(self, batch: Batch) -> None:
        if batch in self.batches:
            self.batches.remove(batch)
