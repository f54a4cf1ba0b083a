"""Sending: the publish queue with a lock, gRPC's calls, and threads."""

from __future__ import annotations

import base64
import logging
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from threading import get_ident
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from pullstream.hooks import HookCalls, PublisherHooks
from pullstream.publish_error import confirmed_ids
from pullstream.rpc.named_errors import name_resource
from pullstream.rpc.request import routing_header
from pullstream.rpc.rpcs import Metadata, Rpcs, begin_or_wait, earliest, to_error
from pullstream.runtime.process import (
    CHECK_EVERY,
    ForkCheck,
    Latch,
    at_exit,
    in_forked_child,
    left_at_exit,
)
from pullstream.statistics import PublisherStatistics
from pullstream_protocol.call_lock import CallLock, InterruptedCall
from pullstream_protocol.clock import Clock
from pullstream_protocol.due_thread import DueThread
from pullstream_protocol.errors import Cancelled, Internal
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import IDEMPOTENCY_KEY

from .encoding import cut
from .exceptions import (
    FlowControlLimitError,
    PublisherClosed,
    PublishToPausedOrderingKeyException,
)
from .flow_control import PublishGauge
from .outage import PublishOutage, time_limit
from .outcome import (
    Callbacks,
    Outcome,
    PublishFuture,
    PublishManyFuture,
    failed_outcome,
    run_callbacks,
)
from .publish_queue import Batch, PublishQueue
from .settings import (
    BatchSettings,
    LimitExceededBehavior,
    PublisherOptions,
    PublishPolicy,
    is_transient,
)

_log = logging.getLogger("pullstream.publisher")

# Google's servers recognise hedged requests by this header.
TELEMETRY_HEADER = "x-goog-pubsub-client-telemetry"

# Seconds to wait for done callbacks in progress when the publisher is closed.
_CALLBACKS_TIMEOUT = 5.0

# Every PublishResponse has message IDs only.
_response_of: Final = pubsub.PublishResponse.FromString


# Takes the topic, the ordering key, the encoded message, and how long to attempt the request.
Publish = Callable[[str, str, bytes, PublishPolicy], PublishFuture]


class PublishSender:
    """Publishes messages of any number of topics in the background.

    Owns the queue and the flow control, which its lock guards. The thread of a `publish` that fills
    a batch sends the batch. The thread "pullstream-publisher" sends batches that are due, retries
    and hedged requests. A thread of gRPC resolves the outcome of a request and sends the next
    batches. Done callbacks run on the thread "pullstream-publish-callbacks", so that a callback
    may block or publish. A signal handler may call any method. It gets InterruptedCall if it would
    wait for the code that it has interrupted.

    Guarantees: every outcome is resolved: with the server's IDs, with the error of the request, or
    by `close` at the latest. No outcome is resolved under the lock. A message that waits for room
    is accepted: `stop` and `close` send it as those in the queue.

    Args:
        rpcs: The calls of a channel.
        settings: When a batch is full, and when it is due.
        options: The options of the client.
        hooks: Called on events.

    Attributes:
        stopped: Whether no more messages are accepted. Those that wait for room are still sent.
    """

    def __init__(
        self,
        rpcs: Rpcs,
        settings: BatchSettings,
        options: PublisherOptions,
        hooks: Sequence[PublisherHooks] = (),
    ) -> None:
        self._rpcs = rpcs
        self._clock: Clock = rpcs.clock
        self._fork = ForkCheck()
        self._compresses_from = (
            options.compression_bytes_threshold if options.enable_compression else None
        )
        flow_control = options.flow_control
        has_limits = flow_control.limit_exceeded_behavior is not LimitExceededBehavior.IGNORE
        self._gauge = PublishGauge(flow_control) if has_limits else None
        self._lock = CallLock()
        self._holds_lock: Callable[[], bool] = self._lock.is_owned
        # Identifiers of the threads that are in `_send_ready`, in the methods that add a message
        # with flow control, and in `close`.
        self._sending: set[int] = set()
        self._adding: set[int] = set()
        self._closing: set[int] = set()
        # Of the threads that wait until every accepted message has a result.
        self._until_resolved: list[Latch] = []
        self._queue = PublishQueue(settings, self._send_soon, options.hedging, self._waits_for)
        self._outage = PublishOutage()
        # With the number of a batch: its idempotency key.
        self._name = uuid.uuid4().hex
        # The wall-clock time at 0 on the monotonic clock.
        self._created = self._clock.now() - self._clock.monotonic()
        self._is_hedged = options.hedging is not None
        self._calls: dict[Batch, list[Any]] = {}
        self.stopped: bool = False
        # Whether messages without room have a future, instead of a `publish` that waits.
        self._defers = False
        # Whether a thread waits for the end, and when it gives up.
        self._is_closing = False
        self._ends_at = math.inf
        # The error of the accepted messages that `close` gave up.
        self._abandoned: PublisherClosed | None = None
        self._closed = False
        # The time for which the thread waits.
        self._wakes_at = math.inf
        self._thread: DueThread | None = None
        self._callbacks_thread: DueThread | None = None
        # Closes the connection; set when nobody can publish any more, see `release`.
        self._hang_up: Callable[[], object] | None = None
        # Set at the close, when the last callbacks have run.
        self._callbacks_ran = Latch()
        self._counts = dict.fromkeys(
            ("published", "failed", "requests", "retries", "hedges", "bytes"), 0
        )
        self._hooks = HookCalls(PublisherHooks, hooks)
        self._hooks.call("started", self.statistics)
        in_forked_child(self, PublishSender.fail_in_child)

    # ---- messages in -----------------------------------------------------------------------

    def publishing_method(self, *, may_block: bool) -> Publish:
        """Return the method that publishes one message, and returns its future.

        It raises PublisherClosed if the client is closed, ForkedProcess if another process created
        the client, and RuntimeError if the system refuses a thread.

        Args:
            may_block: Whether the method waits for room if flow control says BLOCK. If not, a
                message without room is added later, in the order of the calls.
        """
        self._defers = not may_block
        if self._gauge is None:
            return self._add
        return self._add_or_wait if may_block else self._add_or_defer

    def _add_or_wait(
        self, topic: str, key: str, entry: bytes, policy: PublishPolicy
    ) -> PublishFuture:
        room, here = Latch(), get_ident()
        # The interrupted `publish` of a signal handler. It gets the next room, and does not return.
        is_nested = here in self._adding
        try:
            self._adding.add(here)
            if not self._enter_gauge(len(entry), room.set):
                self._wait_for(room, len(entry), is_nested=is_nested)
            return self._add_counted(topic, key, entry, policy)
        except FlowControlLimitError as error:
            return PublishFuture(failed_outcome(error), 0)
        finally:
            if not is_nested:
                self._adding.discard(here)
                if self.stopped:
                    self._check_resolved()

    def _add_or_defer(
        self, topic: str, key: str, entry: bytes, policy: PublishPolicy
    ) -> PublishFuture:
        deferred = Outcome()
        deferred.waits_for = self._waits_for_room

        def add() -> None:
            try:
                future = self._add_counted(topic, key, entry, policy)
            except Exception as error:
                self._run(deferred.resolve((), error))
                return
            self._run(future.pass_on_to(deferred))
            # A task waits for the deferred future, and does not know this one.
            self._flush()

        here = get_ident()
        is_nested = here in self._adding
        try:
            self._adding.add(here)
            if self._enter_gauge(len(entry), add):
                return self._add_counted(topic, key, entry, policy)
        except FlowControlLimitError as error:
            return PublishFuture(failed_outcome(error), 0)
        finally:
            if not is_nested:
                self._adding.discard(here)
                if self.stopped:
                    self._check_resolved()
        return PublishFuture(deferred, 0)

    def publish_many(
        self,
        topic: str,
        groups: Mapping[str, tuple[Sequence[bytes], Sequence[int]]],
        total: int,
        policy: PublishPolicy,
    ) -> PublishManyFuture:
        """Publish messages in requests as large as possible; return one future for all.

        Flow control does not count these messages: the caller has them all in memory.

        Args:
            topic: Full name of the topic.
            groups: By ordering key, or "": the encoded messages, and their positions in the call.
            total: Number of messages.
            policy: How long to attempt the requests.

        Raises:
            PublisherClosed: The client is closed.
            ForkedProcess: Another process created the client.
            RuntimeError: The system refuses a thread.
        """
        requests: list[tuple[Outcome, Sequence[int]]] = []
        with self._lock.once:
            self._check_usable()
            self._ensure_thread()
            for key, (entries, positions) in groups.items():
                sequencer = self._queue.sequencer(topic, key)
                paused = self._queue.paused(sequencer)
                if paused is not None:
                    requests.append((failed_outcome(paused), positions))
                    continue
                start = 0
                for part, size in cut(topic, entries):
                    batch = self._queue.add_full(sequencer, part, size, policy)
                    requests.append((batch.outcome, positions[start : start + len(part)]))
                    start += len(part)
        future = PublishManyFuture(requests, total)
        self._send_ready()
        return future

    def _add_counted(
        self, topic: str, key: str, entry: bytes, policy: PublishPolicy
    ) -> PublishFuture:
        """Add a message that flow control has counted, and which is therefore accepted."""
        try:
            future = self._add(topic, key, entry, policy)
        except BaseException:
            self._leave_gauge(1, len(entry))
            raise
        if self.stopped:
            # The `close` has sent the other open batches, and waits for this one.
            self._flush()
        return future

    def _add(self, topic: str, key: str, entry: bytes, policy: PublishPolicy) -> PublishFuture:
        """Add a message, which flow control has counted if it has limits."""
        queue = self._queue
        # As `self._lock.once`, in less time.
        if self._holds_lock():
            raise InterruptedCall
        with self._lock:
            if self.stopped or self._thread is None:
                # A message that flow control has counted may come after a `stop` or `close`.
                self._check_usable(is_accepted=self._gauge is not None)
                self._ensure_thread()
            name = (topic, key) if key else topic
            sequencer = queue.sequencers.get(name) or queue.sequencer(topic, key)
            paused = queue.paused(sequencer) if sequencer.paused_by is not None else None
            if paused is not None:
                future = PublishFuture(failed_outcome(paused), 0)
            else:
                batch = queue.add(sequencer, entry, policy, self._clock.monotonic)
                future = PublishFuture(batch.outcome, len(batch.entries) - 1)
                if batch.due < self._wakes_at:
                    self._wake_for(batch.due)
            is_sendable = queue.sendable
        if is_sendable:
            self._send_ready()
        if paused is not None:
            self._leave_gauge(1, len(entry))
        return future

    def _enter_gauge(self, size: int, admit: Callable[[], object]) -> bool:
        """Count a message; return False if `admit` will be called when there is room."""
        assert self._gauge is not None
        with self._lock.once:
            self._check_usable()
            if self._gauge.enter(size, admit):
                return True
        # Room comes from other messages, which must not wait for their latency.
        self._flush()
        return False

    def _wait_for(self, room: Latch, size: int, *, is_nested: bool) -> None:
        """Wait until flow control has counted a message of this size."""
        assert self._gauge is not None
        try:
            if is_nested:
                raise InterruptedCall
            room.wait()
        except BaseException:
            # Ctrl-C: the message is not published.
            with self._lock:
                is_counted = not self._gauge.withdraw(room.set)
                self._check_resolved()
            if is_counted:
                self._leave_gauge(1, size)
            raise

    def _leave_gauge(self, messages: int, size: int) -> None:
        self._admit(self._uncount(messages, size))

    def _uncount(self, messages: int, size: int) -> list[Callable[[], object]]:
        """Make room for other messages; return the functions for `_admit`."""
        gauge = self._gauge
        if gauge is None:
            return []
        leave = gauge.leave_in_order if self._defers else gauge.leave
        with self._lock:
            return leave(messages, size)

    def _admit(self, admitted: list[Callable[[], object]]) -> None:
        """Let the messages enter that `_uncount` has made room for."""
        gauge = self._gauge
        if gauge is None:
            return
        while admitted:
            for admit in admitted:
                admit()
            with self._lock:
                admitted = gauge.admitted() if self._defers else []
        if self.stopped:
            self._check_resolved()

    def _check_usable(self, *, is_accepted: bool = False) -> None:
        self._fork.refuse_child()
        if is_accepted:
            if self._abandoned is not None:
                raise self._abandoned
        elif self.stopped:
            raise PublisherClosed("this publisher is closed; make a new one")

    # ---- sending -------------------------------------------------------------------------------

    def _send_ready(self) -> None:
        """Send the batches that may be sent now."""
        here, batch = get_ident(), None
        if here in self._sending:
            # A signal handler or a done callback inside the loop below, which goes on.
            return
        try:
            self._sending.add(here)
            while True:
                with self._lock:
                    batch = self._queue.next_batch(self._clock.monotonic())
                if batch is None:
                    return
                self._begin(batch, batch.attempts)
        except BaseException:
            # Ctrl-C, perhaps between the two steps.
            if self._thread is not None:
                self._thread.post(partial(self._resume_sending, batch))
            raise
        finally:
            self._sending.discard(here)

    def _resume_sending(self, batch: Batch | None) -> None:
        """Go on after `_send_ready` was interrupted; `batch` is the last one that it took."""
        if batch is not None and batch not in self._calls:
            with self._lock:
                is_needed = batch in self._queue.batches and batch.answers_due > 0
            if is_needed:
                self._begin(batch, batch.attempts)
        self._send_ready()

    def _begin(self, batch: Batch, attempt: int) -> None:
        """Send a request for a batch, without waiting for the answer."""
        payload = batch.sequencer.prefix + b"".join(batch.entries)
        is_large = self._compresses_from is not None and len(payload) >= self._compresses_from
        # Before the call: the server's silence begins no later than the request reaches it.
        began = self._clock.monotonic()
        try:
            # The idempotency key, or the user's choice of retries, allows a second call.
            call: Any = begin_or_wait(
                self._rpcs,
                "Publish",
                payload,
                batch.policy.attempt_timeout,
                self._metadata(batch, attempt),
                grpc.Compression.Gzip if is_large else None,
            )
        except Exception as error:
            # A closed channel, or metadata that gRPC refuses.
            self._end(batch, (), error, 0.0)
            return
        call.add_done_callback(partial(self._ended, batch, began))
        with self._lock:
            is_needed = batch in self._queue.batches
            if is_needed:
                self._outage.sent(began)
                due = earliest(self._outage.report_due, self._rpcs.next_check)
                if due is not None:
                    self._wake_for(due)
                # gRPC cancels a call without references. Last: a Ctrl-C before this leaves a call
                # that `_ended` does not know, and `_resume_sending` makes another.
                self._calls.setdefault(batch, []).append(call)
        if not is_needed:
            # Another request for the batch succeeded in the meantime, or `close` gave it up.
            call.cancel()
        elif call.done() and self._thread is not None:
            # The callback may have run before `_ended` knew the call.
            self._thread.post(partial(self._ended, batch, began, call))

    def _metadata(self, batch: Batch, attempt: int) -> Metadata:
        topic = batch.sequencer.topic
        # The same for all requests of a batch.
        identity = (IDEMPOTENCY_KEY, f"{self._name}-{batch.number}")
        if not self._is_hedged or batch.sequencer.key:
            return (_routing_header(topic), identity)
        started = Timestamp()
        started.FromNanoseconds(round((self._created + batch.taken_at) * 1e9))
        operation = pubsub.PubsubClientTelemetry.PublishOperation(
            hedged_attempt_count=attempt - 1, publish_start_time=started
        )
        telemetry = pubsub.PubsubClientTelemetry(publish_operation=operation)
        encoded = base64.b64encode(telemetry.SerializeToString()).decode()
        return (_routing_header(topic), identity, (TELEMETRY_HEADER, encoded))

    # ---- answers -------------------------------------------------------------------------------

    def _ended(self, batch: Batch, began: float, call: Any) -> None:
        """Take the answer of a call, on gRPC's thread. Has no effect the second time."""
        with self._lock:
            calls = self._calls.get(batch, [])
            if call not in calls:
                return
            calls.remove(call)
        error: BaseException | None
        message_ids: Sequence[str] = ()
        try:
            error = call.exception()
            if error is None:
                message_ids = confirmed_ids(
                    _response_of(call.result()), len(batch.entries), batch.sequencer.topic
                )
            elif isinstance(error, grpc.RpcError):
                error = to_error(error, "Publish")
                name_resource(error, [batch.sequencer.topic])
        except grpc.FutureCancelledError:
            error = Cancelled("the client cancelled the call")
        except DecodeError as damaged:
            # gRPC gives this status to answers that it parses itself.
            error = Internal(f"the answer to Publish cannot be parsed: {damaged}")
        except Exception as unexpected:
            error = unexpected
        self._end(batch, message_ids, error, self._clock.monotonic() - began)

    def _end(
        self,
        batch: Batch,
        message_ids: Sequence[str],
        error: BaseException | None,
        seconds: float,
    ) -> None:
        """Record the end of a request, resolve its batch, and send the next batches."""
        now = self._clock.monotonic()
        queue, counts = self._queue, self._counts
        failed: list[Batch] | None = None
        is_over = False
        with self._lock:
            if batch not in queue.batches:
                # Another request for the same batch was first, or `close`.
                return
            counts["requests"] += 1
            if error is None:
                queue.succeeded(batch)
                counts["published"] += len(batch.entries)
                counts["bytes"] += batch.size
            else:
                failed = queue.failed(batch, error, now)
                counts["failed"] += sum(len(one.entries) for one in failed or ())
                counts["retries"] += failed is None and not batch.answers_due
            needless = [] if batch.answers_due and error else self._calls.pop(batch, [])
            if error is None or (failed is not None and not is_transient(error)):
                is_over = self._outage.answered(now, others_wait=bool(self._calls))
            else:
                self._outage.failed(error)
            due = queue.next_due() if error else None
            if due is not None:
                self._wake_for(due)
        if is_over:
            _log.info("the server answers again")
        self._hooks.call(
            "request_done", batch.sequencer.topic, len(batch.entries), batch.size, seconds, error
        )
        if error is None:
            self._hooks.call(
                "published", batch.sequencer.topic, len(batch.entries), now - batch.taken_at
            )
            self._resolve(batch, message_ids, None)
            if batch.attempts > 1:
                for call in needless:
                    call.cancel()
        elif failed:
            self._fail(failed, error)
        self._send_ready()
        if not queue.batches:
            self._check_resolved()
            if self._hang_up is not None:
                self._post_end()

    def _fail(self, batches: Sequence[Batch], error: BaseException) -> None:
        """Resolve batches whose first one has failed; the others have its key, which is paused."""
        first, *others = batches
        _log.warning(
            "%d messages to %s%s were not published (%d requests): %s%s",
            len(first.entries),
            first.sequencer.topic,
            f" with ordering key {first.sequencer.key!r}" if first.sequencer.key else "",
            first.attempts,
            error,
            f"; {sum(len(batch.entries) for batch in others)} later messages of the key were not "
            "sent"
            if others
            else "",
        )
        paused = PublishToPausedOrderingKeyException(first.sequencer.key, error)
        for batch in batches:
            reason = error if batch is first else paused
            self._hooks.call("failed", batch.sequencer.topic, len(batch.entries), reason)
            self._resolve(batch, (), reason)

    def _resolve(
        self, batch: Batch, message_ids: Sequence[str], error: BaseException | None
    ) -> None:
        """Resolve a batch and run its done callbacks; make room for others."""
        size = batch.size - len(batch.sequencer.prefix)
        # Before the result, because a caller that has it may publish at once.
        admitted = self._uncount(len(batch.entries), size) if batch.is_counted else []
        self._run(batch.outcome.resolve(message_ids, error))
        if batch.is_counted:
            self._admit(admitted)

    def _run(self, callbacks: Callbacks) -> None:
        """Run done callbacks on their thread, or on this one if there is no such thread."""
        if not callbacks:
            return
        with self._lock:
            if self._callbacks_thread is None and not self._closed:
                thread = DueThread(
                    self._clock,
                    lambda: None,
                    lambda: None,
                    name="pullstream-publish-callbacks",
                )
                with suppress(RuntimeError):
                    thread.start()
                    self._callbacks_thread = thread
            has_thread = self._callbacks_thread is not None and not self._closed
            if self._callbacks_thread is not None and has_thread:
                self._callbacks_thread.post(partial(run_callbacks, callbacks))
        if not has_thread:
            run_callbacks(callbacks)

    # ---- the thread ----------------------------------------------------------------------------

    def _send_soon(self, batch: Batch) -> None:
        # The caller waits, and a thread that it has interrupted may have to send the batch.
        self._refuse_to_wait()
        # Without the lock: `is_awaited` never changes back. Usually many tasks wait for one batch.
        if batch.is_awaited or batch.sequencer.open is not batch:
            return
        with self._lock:
            self._queue.send_soon(batch)
            is_sendable = self._queue.sendable
        if is_sendable:
            self._send_ready()

    def _waits_for(self, batch: Batch) -> str:
        with self._lock:
            return self._outage.reason_of(batch, self._clock.monotonic())

    def _waits_for_room(self) -> str:
        with self._lock:
            state = self._outage.state(self._clock.monotonic())
        return f"the limits of flow control leave no room for the message: {state}"

    def _warn_of_wait(self) -> None:
        """Log what the messages wait for and for how long, if the server fails at present."""
        with self._lock:
            warning = self._warning() if self._outage.is_known else ""
        if warning:
            _log.warning(warning)

    def _warning(self) -> str:
        """Return what the messages wait for and for how long, or "". Under the lock."""
        now = self._clock.monotonic()
        messages = self._queue.messages + (self._gauge.waiting if self._gauge else 0)
        if not messages:
            return ""
        left = min(self._queue.gives_up_at(now), self._ends_at) - now
        who = "the end of the publisher waits for them" if self._is_closing else "they are retried"
        return (
            f"{self._outage.state(now)}; {messages:,} messages are not confirmed, and {who} "
            f"{time_limit(left)}"
        )

    def _flush(self) -> None:
        with self._lock:
            self._queue.flush()
        self._send_ready()

    def _ensure_thread(self) -> None:
        """Start the thread if it does not run. Under the lock."""
        if self._thread is None:
            thread = DueThread(self._clock, self._next_due, self._act, name="pullstream-publisher")
            thread.start()
            self._thread = thread
            at_exit(self, PublishSender._begin_exit, PublishSender._finish_exit)

    def _wake_for(self, due: float) -> None:
        """Make the thread act at this time. Under the lock."""
        if self._thread is not None and due < self._wakes_at:
            self._wakes_at = due
            self._thread.wake()

    def _next_due(self) -> float | None:
        with self._lock:
            due = earliest(self._queue.next_due(), self._outage.report_due, self._rpcs.next_check)
            self._wakes_at = math.inf if due is None else due
            return due

    def _act(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            self._queue.expire(now)
            warning = self._warning() if self._outage.must_report(now) else ""
        if warning:
            _log.warning(warning)
        self._rpcs.check_if_due()
        self._send_ready()
        while self._is_hedged:
            with self._lock:
                batch = self._queue.next_hedge(now)
                self._counts["hedges"] += batch is not None
            if batch is None:
                return
            self._begin(batch, batch.attempts)

    # ---- the user's other calls ----------------------------------------------------------------

    def resume(self, topic: str, key: str) -> bool:
        """Accept messages of a paused key again; return whether the key was paused."""
        with self._lock.once:
            self._check_usable()
            return self._queue.resume(topic, key)

    def statistics(self) -> PublisherStatistics:
        """Return the counters and the present load."""
        with self._lock.once:
            return PublisherStatistics(
                waiting=self._queue.messages, in_flight=len(self._calls), **self._counts
            )

    def stop(self) -> None:
        """Accept no more messages, and send the open batches. Does not wait.

        Raises:
            PublisherClosed: The publisher is stopped already.
        """
        with self._lock.once:
            self._check_usable()
            self.stopped = True
        self._flush()
        self._warn_of_wait()

    def close(self, timeout: float | None = None) -> None:
        """Send all messages, and wait until each has a result. Idempotent.

        In a fork of the process that created the sender, this method does nothing.

        Args:
            timeout: Seconds to wait; then the remaining messages fail with PublisherClosed. None:
                until the retries give up.

        Raises:
            InterruptedCall: A signal handler calls this method while the interrupted code is in
                another method. Nothing has changed.
        """
        if self._fork.is_child:
            return
        self._refuse_to_wait()
        here = get_ident()
        try:
            self._closing.add(here)
            self._close(timeout)
        finally:
            self._closing.discard(here)

    def _close(self, timeout: float | None) -> None:
        due = None if timeout is None else self._clock.monotonic() + timeout
        with self._lock:
            self.stopped = self._is_closing = True
            if due is not None:
                self._ends_at = min(self._ends_at, due)
        self._flush()
        self._warn_of_wait()
        self._wait_until_resolved(due)
        with self._lock:
            waiting = self._gauge.abandon() if self._gauge else []
            unresolved = list(self._queue.abandon())
            calls = [call for of_batch in self._calls.values() for call in of_batch]
            self._calls.clear()
            sent = sum(len(batch.entries) for batch in unresolved if batch.attempts)
            unsent = sum(len(batch.entries) for batch in unresolved) - sent
            if self._defers:
                unsent += len(waiting)
            self._counts["failed"] += sent + unsent
            error = PublisherClosed(
                f"the publisher was closed, and {timeout} s were not enough: {unsent} messages "
                f"were not sent, and {sent} were sent but not confirmed"
            )
            self._abandoned = self._abandoned or error
            self._check_resolved()
        if sent or unsent:
            _log.warning("%s", error)
        # Their `publish` raises the error, or their future has it.
        for admit in waiting:
            admit()
        for batch in unresolved:
            self._hooks.call("failed", batch.sequencer.topic, len(batch.entries), error)
            self._run(batch.outcome.resolve((), error))
        for call in calls:
            call.cancel()
        self._end_threads()

    def release(self, hang_up: Callable[[], object]) -> None:
        """End as soon as every accepted message has a result, because the client is collected.

        The garbage collector calls this method on any thread, at any instruction. So it takes no
        lock, and leaves the work to the sender's thread.

        Args:
            hang_up: Closes the connection.
        """
        self._hang_up = hang_up
        self._post_end()

    def _post_end(self) -> None:
        if self._thread is not None and not self._fork.is_child:
            self._thread.post(self._end_if_idle)

    def _end_if_idle(self) -> None:
        self._flush()
        if self._has_unresolved() or self._thread is None or self._hang_up is None:
            # The answer to the last request calls this method again.
            return
        with self._lock:
            self.stopped = self._closed = True
            callbacks = self._callbacks_thread
        if callbacks is not None:
            # After the callbacks that it has.
            callbacks.post(callbacks.stop)
        self._thread.stop()
        self._hang_up()

    def _begin_exit(self, timeout: float) -> None:
        """Accept no more messages, and send the open batches without waiting.

        The thread of the sender sends them, because a call may have to be waited for if the exiting
        interpreter refuses threads. So all senders of the program do so at the same time.
        """
        with self._lock:
            self.stopped = True
        if self._thread is not None:
            self._thread.post(self._flush)

    def _finish_exit(self, timeout: float) -> None:
        """Wait until each message has a result; see `close`."""
        self.close(round(timeout, 1))

    def _wait_until_resolved(self, due: float | None) -> None:
        """Wait until every accepted message has a result, or until the time `due` on the clock."""
        while True:
            latch = Latch()
            self._until_resolved.append(latch)
            try:
                if not self._has_unresolved() or (left := self._clock.timeout(due)) == 0.0:
                    return
                latch.wait(CHECK_EVERY if left is None else left)
            finally:
                self._until_resolved.remove(latch)

    def _refuse_to_wait(self) -> None:
        """Check that the awaited messages do not need the code that a signal handler interrupted.

        Raises:
            InterruptedCall: They may need it.
        """
        here = get_ident()
        is_inside = here in self._sending or here in self._adding or here in self._closing
        if is_inside or self._holds_lock():
            raise InterruptedCall

    def _check_resolved(self) -> None:
        """Make the threads that wait until every accepted message has a result check that."""
        for latch in tuple(self._until_resolved):
            latch.set()

    def _has_unresolved(self) -> bool:
        """Return whether an accepted message has no result."""
        with self._lock:
            is_waiting = self._gauge is not None and self._gauge.is_waited_for
            is_entering = bool(self._adding) or is_waiting
            return self._abandoned is None and (bool(self._queue.messages) or is_entering)

    def _end_threads(self) -> None:
        if self._thread is not None:
            self._thread.stop(left_at_exit(_CALLBACKS_TIMEOUT))
        with self._lock:
            is_first = not self._closed
            self._closed = True
            callbacks = self._callbacks_thread
        if callbacks is None:
            return
        # A thread that is stopped begins nothing, so let it finish first.
        if callbacks.runs_here():
            self._callbacks_ran.set()
        elif is_first:
            callbacks.post(self._callbacks_ran.set)
        self._callbacks_ran.wait(left_at_exit(_CALLBACKS_TIMEOUT))
        callbacks.stop(0)

    def fail_in_child(self) -> None:
        """Resolve all outcomes in a forked child, which has no threads and no connection."""
        self._lock = CallLock()
        self._holds_lock = self._lock.is_owned
        self.stopped = self._closed = True
        for batch in list(self._queue.batches):
            batch.outcome.fail_in_child(self._fork.error())
        # Deferred messages: adding them raises ForkedProcess.
        for admit in self._gauge.abandon() if self._gauge else ():
            admit()


@lru_cache(maxsize=1024)
def _routing_header(topic: str) -> tuple[str, str]:
    return routing_header(pubsub.PublishRequest(topic=topic))
