"""The rules of `fetch`: what is asked of the server, how long, and when that is enough.

First an immediate request takes what is there. Only if that is too little, a lingering one waits:
its deadline is what is left of the caller's time, and a server answers a margin before it, with
nothing if there is nothing. gRPC carries the deadline over, so no field is needed for it, and a
cancelled call is withdrawn by itself.

No thread and no gRPC is here: calls are steps, see steps.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from protocol.clock import Clock
from protocol.errors import DeadlineExceeded, PullstreamError
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.arguments import number
from subscriber.exceptions import PullTimeout
from subscriber.steps import Call, Pause, Steps
from subscriber.streaming.backoff import Backoff

from .settle import settle

Reason = Literal["filled", "timed_out", "drained"]

# Seconds before its deadline at which a lingering call is answered; of a time below a second it is
# a tenth. Measured on loaded machines: 100 ms is safe, 20 ms is not. With less time than this left
# no other call is made.
MARGIN = 0.1

# Longest wait of one call, in seconds. Our broker answers then; a longer wait is renewed.
LONGEST_LINGER = 90.0

# How long a server may take to answer an immediate request, in seconds, if there is no other limit.
ANSWER_TIME = 60.0

# gRPC rounds a deadline up on its way, by as much as this part of it, and a server answers so much
# earlier. What is left then is not worth a call either.
ROUNDING = 0.01

# A response ends with so many messages at most, or with the one before that which would make it too
# large. So with as many, or as many bytes, there may be more.
FULL_MESSAGES = 1000
FULL_BYTES = 1_000_000

# What a request can ask for at most, as the field is an int32.
MOST_ASKED = 2**31 - 1

# Messages that wait for others are extended before their lease can end, which lasts 10 s or more,
# and then by so many seconds, before these are over.
FIRST_EXTENSION = 8.0
EXTENSION = 60
EXTEND_AT = 0.8

# How long giving back may take when a fetch is interrupted, in seconds.
GIVE_BACK_TIME = 2.0


@dataclass(frozen=True)
class Wanted:
    """What a caller of `fetch` asks for; see `SubscriberClient.fetch`."""

    subscription: str
    max_messages: int = 1
    timeout: float | None = 5.0
    min_messages: int = 1
    no_wait: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.subscription, str):
            raise TypeError(f"subscription is {self.subscription!r}; it must be the full name")
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
        if self.timeout is not None and number("timeout", self.timeout) <= 0:
            raise ValueError(
                f"timeout is {self.timeout}; it must be above 0 seconds, or None to wait for ever "
                "(no_wait=True does not wait)"
            )


@dataclass(frozen=True)
class Fetched:
    """Responses with messages, each with the time at which it came, on the monotonic clock."""

    responses: Sequence[tuple[float, pubsub.PullResponse]]
    reason: Reason


class Fetch:
    """One fetch. `steps` returns Fetched.

    Owned by whoever runs the steps; another thread may `cancel`.

    Raises:
        PullTimeout: there was no message in time.
        RpcError: the server refused, or is gone. What was received before is given back.
    """

    def __init__(self, wanted: Wanted, clock: Clock) -> None:
        self._wanted = wanted
        self._clock = clock
        self._responses: list[tuple[float, pubsub.PullResponse]] = []
        self._count = 0
        self._answered = False
        self._lingering: Call | None = None
        self._cancelled = False
        timeout = math.inf if wanted.timeout is None else wanted.timeout
        self._deadline = clock.monotonic() + timeout
        self._margin = min(MARGIN, timeout / 10)
        # With less time left than this no other call is made.
        self._least = self._margin
        self._lease_due = math.inf
        # For servers that answer at once that there is nothing, and should have waited.
        self._backoff = Backoff(0.05, 1.0)

    def steps(self) -> Steps[Fetched]:
        try:
            reason = yield from self._gather()
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._give_back()
            raise
        if not self._count and (not self._wanted.no_wait or not self._answered):
            raise PullTimeout(self._nothing(), answered=self._answered)
        return Fetched(self._responses, reason)

    def cancel(self) -> None:
        """Let the wait for more end with Cancelled, now or when it begins. From any thread."""
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
        """Why there is no more; None if there may be, as the response had as much as one can."""
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
            yield Pause(min(now + self._backoff.next_pause(), self._deadline))

    def _pull(self, timeout: float, *, immediately: bool) -> Steps[pubsub.PullResponse | None]:
        """One call; its response, or None if there was none in time."""
        request = pubsub.PullRequest(
            subscription=self._wanted.subscription,
            max_messages=min(self._wanted.max_messages - self._count, MOST_ASKED),
            return_immediately=immediately,
        )
        call = Call("Pull", request, timeout, lingers=not immediately)
        if not immediately:
            self._lingering = call
            # After the line above: a `cancel` on another thread sees the call, or is seen here.
            if self._cancelled:
                call.withdraw()
        try:
            yield call
            self._answered = True
        except DeadlineExceeded:
            # The time of this call. Whether it was the last of all is seen by the clock.
            pass
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

    # ---- what it holds while it waits for more -------------------------------------------------

    @property
    def _lease_is_due(self) -> bool:
        return self._lease_due - self._clock.monotonic() <= self._least

    def _extend_leases(self) -> Steps[None]:
        self._lease_due = self._clock.monotonic() + EXTENSION * EXTEND_AT
        # Without success messages may come again, no more. What is wrong the next pull will tell.
        yield from self._settle(EXTENSION, min(self._left, ANSWER_TIME))

    def _give_back(self) -> Steps[None]:
        # Without success their leases end by themselves. The caller sees why the fetch ended.
        with suppress(PullstreamError):
            yield from self._settle(0, GIVE_BACK_TIME)

    def _settle(self, seconds: int, timeout: float) -> Steps[None]:
        ack_ids = [m.ack_id for _, response in self._responses for m in response.received_messages]
        if ack_ids:
            name, clock = self._wanted.subscription, self._clock
            yield from settle(name, seconds, ack_ids, clock, patience=0, timeout=timeout)

    def _nothing(self) -> str:
        name, seconds = self._wanted.subscription, self._wanted.timeout
        if self._answered:
            return f"no message came from {name} within {seconds} s"
        if self._wanted.no_wait:
            seconds = ANSWER_TIME if seconds is None else min(seconds, ANSWER_TIME)
        return f"no answer about {name} came from the server within {seconds} s"
