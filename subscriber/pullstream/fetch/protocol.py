"""Rules of `fetch`: the pull requests, their deadlines, and the end of the fetch.

First an immediate request takes the available messages. If they are too few, a long-polling request
waits. Its deadline is the rest of the caller's time. The server answers shortly before the
deadline, with an empty response if there are no messages. gRPC transmits the deadline, so the
request needs no field for it, and a cancelled call is withdrawn automatically.

This module has no thread and no gRPC: calls are steps, see sansio.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pullstream.exceptions import PullTimeout
from pullstream.rpc.local_errors import ConnectionReplaced, TokenUnavailable
from pullstream.rpc.rpcs import Repetition
from pullstream.rpc.sansio import Sleep, Steps, UnaryCall, naming
from pullstream.runtime.retry_clock import Backoff
from pullstream.runtime.validation import require_number, require_text
from pullstream.streaming.ack_requests import Purpose
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import DeadlineExceeded, InvalidArgument, NotFound, PullstreamError
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .settle_call import settle

Reason = Literal["filled", "timed_out", "drained"]

# A long-polling call is answered this many seconds before its deadline; for timeouts below one
# second, a tenth of the timeout before it. Measured on loaded machines: 100 ms is safe, 20 ms is
# not. If less time than this is left, no further call is made.
MARGIN = 0.1

# Longest wait of one call, in seconds. pullstream's broker answers then; a longer fetch calls
# again. A call without an answer shows that the connection may be dead.
LONGEST_LINGER = 20.0

# Time limit for the answer to an immediate request if there is no other limit, in seconds.
ANSWER_TIME = 20.0

# gRPC rounds a transmitted deadline by up to this part of it. A server may therefore answer that
# much earlier, and the time that is left then is too short for another call.
ROUNDING = 0.01

# The server limits a response to this many messages, and ends it before a message that would make
# it too large. So a response with this many messages or bytes may not contain all available ones.
FULL_MESSAGES = 1000
FULL_BYTES = 1_000_000

# The largest number of messages in a request, because the field is an int32.
MAX_REQUESTED = 2**31 - 1

# The leases of messages that wait for others are extended. A lease lasts at least 10 s, so the
# first extension happens after FIRST_EXTENSION seconds. Each extension is for EXTENSION seconds,
# and the next one follows when EXTEND_AT of them have passed.
FIRST_EXTENSION = 8.0
EXTENSION = 60
EXTEND_AT = 0.8

# Time limit for returning messages when a fetch is interrupted, in seconds.
RETURN_TIME = 2.0


@dataclass(frozen=True)
class Wanted:
    """The arguments of a fetch; see `SubscriberClient.fetch`."""

    subscription: str
    max_messages: int = 1
    timeout: float | None = 5.0
    min_messages: int = 1
    no_wait: bool = False
    missing_ok: bool = False

    def __post_init__(self) -> None:
        require_text("subscription", self.subscription, "the full name, a str")
        for name in ("max_messages", "min_messages"):
            count = getattr(self, name)
            if not isinstance(count, int) or isinstance(count, bool):
                raise TypeError(f"{name} is {count!r}; it must be a whole number")
            if count < 1:
                raise ValueError(f"{name} is {count}; it must be 1 or more")
        if self.min_messages > self.max_messages:
            raise ValueError(
                f"min_messages is {self.min_messages}; it must not be above max_messages, "
                f"which is {self.max_messages}"
            )
        if self.timeout is not None and require_number("timeout", self.timeout) <= 0:
            raise ValueError(
                f"timeout is {self.timeout}; it must be above 0 seconds, or None for no limit "
                "(use no_wait=True to return immediately)"
            )


@dataclass(frozen=True)
class Fetched:
    """The result of a fetch.

    Attributes:
        responses: Responses with messages, each with its time of receipt on the monotonic clock.
        reason: Why the fetch ended.
    """

    responses: Sequence[tuple[float, pubsub.PullResponse]]
    reason: Reason


class Fetch:
    """One fetch. `steps` returns Fetched.

    `steps` raises PullTimeout if no message or no answer arrives in time, and RpcError if the
    server refuses or is unreachable. After an error it returns the received messages to the server.

    Owned by the thread or task that runs the steps; any other thread may `cancel`.
    """

    def __init__(self, wanted: Wanted, clock: Clock) -> None:
        self._wanted = wanted
        self._clock = clock
        self._responses: list[tuple[float, pubsub.PullResponse]] = []
        self._count = 0
        self._answered = False
        self._lingering: UnaryCall | None = None
        self._cancelled = False
        timeout = math.inf if wanted.timeout is None else wanted.timeout
        self._deadline = clock.monotonic() + timeout
        self._margin = min(MARGIN, timeout / 10)
        # If less time than this is left, no further call is made.
        self._least = self._margin
        self._lease_due = math.inf
        # For servers that answer an empty response immediately instead of waiting.
        self._backoff = Backoff(0.05, 1.0)

    def steps(self) -> Steps[Fetched]:
        """Yield calls and pauses until enough messages arrive or time is over; return Fetched."""
        try:
            reason = yield from self._gather()
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._return_messages()
            raise
        empty_is_fine = self._answered and (self._wanted.no_wait or self._wanted.missing_ok)
        if not self._count and not empty_is_fine:
            raise PullTimeout(self._nothing(), answered=self._answered)
        return Fetched(self._responses, reason)

    def cancel(self) -> None:
        """End the wait for messages with Cancelled, now or when it begins. For any thread."""
        self._cancelled = True
        if self._lingering is not None:
            self._lingering.withdraw()

    def _gather(self) -> Steps[Reason]:
        wanted = self._wanted
        reason: Reason | None = None
        while reason is None:
            if self._left <= self._least:
                return "timed_out"
            if self._lease_is_due:
                yield from self._extend_leases()
            else:
                reason = yield from self._take_what_is_there()
        if wanted.no_wait or self._count >= wanted.min_messages:
            return reason
        while self._left > self._least:
            if self._lease_is_due:
                yield from self._extend_leases()
                continue
            yield from self._linger()
            if self._is_filled:
                return "filled"
            if self._count >= wanted.min_messages:
                return "drained"
        return "timed_out"

    @property
    def _is_filled(self) -> bool:
        return self._count >= self._wanted.max_messages

    @property
    def _left(self) -> float:
        return self._deadline - self._clock.monotonic()

    def _take_what_is_there(self) -> Steps[Reason | None]:
        """Pull the available messages.

        Returns:
            Why there are no more; None if there may be more, because the response was full.
        """
        response = yield from self._pull(min(self._left, ANSWER_TIME), immediately=True)
        if self._is_filled:
            return "filled"
        if response is None:
            return "timed_out"
        is_full = len(response.received_messages) >= FULL_MESSAGES
        return None if is_full or response.ByteSize() >= FULL_BYTES else "drained"

    def _linger(self) -> Steps[None]:
        before = self._clock.monotonic()
        wait = min(self._left, LONGEST_LINGER, self._lease_due - before)
        response = yield from self._pull(wait, immediately=False)
        self._least = 2 * self._margin + wait * ROUNDING
        now = self._clock.monotonic()
        is_empty = response is None or not response.received_messages
        if is_empty and now - before < wait / 2:
            yield Sleep(min(now + self._backoff.next_pause(), self._deadline))

    def _pull(self, timeout: float, *, immediately: bool) -> Steps[pubsub.PullResponse | None]:
        """Make one call; return its response, or None if there was none in time."""
        request = pubsub.PullRequest(
            subscription=self._wanted.subscription,
            max_messages=min(self._wanted.max_messages - self._count, MAX_REQUESTED),
            return_immediately=immediately,
        )
        repetition = Repetition(self._deadline)
        while True:
            call = UnaryCall("Pull", request, min(timeout, self._left), lingers=not immediately)
            if not immediately:
                self._lingering = call
                # After the line above. Then a `cancel` on another thread either sees the call, or
                # this check sees the flag of `cancel`.
                if self._cancelled:
                    call.withdraw()
            try:
                yield call
                self._answered = True
            except DeadlineExceeded:
                # The time of this call is up. The clock decides whether another call follows.
                pass
            except (NotFound, InvalidArgument) as error:
                yield from naming(error, "Pull", [request.subscription])
                raise
            except (TokenUnavailable, ConnectionReplaced):
                # Nothing was received. Messages of a lost answer are redelivered.
                again = repetition.next_attempt(self._clock.monotonic())
                if again is None:
                    raise
                yield Sleep(again)
                continue
            finally:
                self._keep(call.response)
            response: pubsub.PullResponse | None = call.response
            return response

    def _keep(self, response: pubsub.PullResponse | None) -> None:
        if response is None or not response.received_messages:
            return
        now = self._clock.monotonic()
        self._lease_due = min(self._lease_due, now + FIRST_EXTENSION)
        self._count += len(response.received_messages)
        self._responses.append((now, response))

    # ---- received messages, during the wait for more -------------------------------------------

    @property
    def _lease_is_due(self) -> bool:
        return self._lease_due - self._clock.monotonic() <= self._least

    def _extend_leases(self) -> Steps[None]:
        self._lease_due = self._clock.monotonic() + EXTENSION * EXTEND_AT
        # Errors are ignored: they can only cause redeliveries, and the next pull reports a lasting
        # problem.
        yield from self._settle(EXTENSION, min(self._left, ANSWER_TIME))

    def _return_messages(self) -> Steps[None]:
        # If this fails, the leases end by themselves. The caller gets the error of the fetch.
        with suppress(PullstreamError):
            yield from self._settle(0, RETURN_TIME, Purpose.RETURN)

    def _settle(self, seconds: int, timeout: float, purpose: Purpose = Purpose.USER) -> Steps[None]:
        ack_ids = [m.ack_id for _, response in self._responses for m in response.received_messages]
        if ack_ids:
            name, clock = self._wanted.subscription, self._clock
            yield from settle(
                name, purpose, ack_ids, clock, seconds=seconds, retry_for=0, timeout=timeout
            )

    def _nothing(self) -> str:
        name, seconds = self._wanted.subscription, self._wanted.timeout
        if self._answered:
            return f"no message arrived from {name} within {seconds} s"
        if self._wanted.no_wait:
            seconds = ANSWER_TIME if seconds is None else min(seconds, ANSWER_TIME)
        return f"the server did not answer the pull from {name} within {seconds} s"
