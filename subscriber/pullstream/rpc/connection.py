"""The connection of a client's unary calls: notices that the server is silent.

A connection can be dead without a sign: the other end of a port forwarding or a router has
forgotten it. gRPC's own remedy, a ping on every idle connection, is no remedy for all servers: with
gRPC's defaults they end a connection that pings more than once in five minutes.

The rule: a call that the server does not answer in time may be slow. So the connection then makes
a cheap call, to which every server has an answer. If that is not answered either, the connection is
dead, and is replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from pullstream.runtime.fork_barrier import BARRIER
from pullstream_protocol.clock import Clock

from .abandoned_channels import has_its_thread

_log = logging.getLogger("pullstream.connection")

# In seconds: a connection is checked if nothing has come from the server for this long, although
# calls have waited. Calls that end by their deadline cause the check earlier than calls that wait.
SILENT_CALL = 15.0
SILENT_WAIT = 30.0

# Seconds that the server has to answer the check.
ANSWER_WITHIN = 10.0

# Servers without this service answer that they do not have it.
_CHECK = "/grpc.health.v1.Health/Check"

# A call may end like this without any sign from the server.
_SILENT_ENDS = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class Connection:
    """One channel, and when its server was last heard. Thread-safe, without a lock.

    It has no lock because a signal handler may make a call in the middle of another. Each change is
    one operation on a dict or one assignment.

    Args:
        channel: The channel.
        clock: Measures time.
        dead: Called, on a thread of gRPC, when the server is found to be silent.

    Attributes:
        channel: The channel.
        stubs: gRPC's callables, by keys that the owner chooses.
    """

    def __init__(
        self, channel: grpc.Channel, clock: Clock, dead: Callable[[Connection], None]
    ) -> None:
        self.channel = channel
        self.stubs: dict[Any, Any] = {}
        self._clock = clock
        self._dead = dead
        self._heard_at = clock.monotonic()
        # The beginnings of the open calls, and of the first call that ended without a sign from the
        # server since it was last heard.
        self._open: dict[object, float] = {}
        self._missed: float | None = None
        # gRPC cancels a call without references.
        self._check_call: Any = None

    # ---- calls -----------------------------------------------------------------------------

    def began(self) -> object:
        """Note a call that begins, and return its token for `ended`."""
        token = object()
        self._open[token] = self._clock.monotonic()
        return token

    def ended(self, token: object, code: grpc.StatusCode | None) -> None:
        """Note the end of a call. None: it ended by an error of this side."""
        began = self._open.pop(token, None)
        if code is not None and code not in _SILENT_ENDS:
            self._heard()
            return
        if self._missed is None:
            self._missed = began
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            self._check_after(SILENT_CALL)

    def _heard(self) -> None:
        self._missed = None
        self._heard_at = self._clock.monotonic()

    # ---- silence -----------------------------------------------------------------------------

    @property
    def _silent_since(self) -> float | None:
        """When the server should have said something first; None if it has nothing to say."""
        waiting = list(self._open.values())
        missed = self._missed
        if missed is not None:
            waiting.append(missed)
        return max(min(waiting), self._heard_at) if waiting else None

    def next_check(self) -> float | None:
        """Return when to call `check_if_due`; None if no call waits."""
        since = self._silent_since
        return None if since is None or self._check_call is not None else since + SILENT_WAIT

    def check_if_due(self) -> None:
        """Check a server that has left calls without an answer for SILENT_WAIT seconds."""
        self._check_after(SILENT_WAIT)

    def _check_after(self, seconds: float) -> None:
        since = self._silent_since
        if since is not None and self._clock.monotonic() >= since + seconds:
            self.check()

    def check(self) -> None:
        """Find out whether the server answers; if not, report the connection as dead."""
        if self._check_call is not None or not has_its_thread(self.channel):
            return
        began = self._clock.monotonic()
        call: Any = self.channel.unary_unary(_CHECK)
        try:
            self._check_call = BARRIER.begin(lambda: call.future(b"", timeout=ANSWER_WITHIN))
        except (RuntimeError, ValueError):
            # The process is about to end, or the channel is closed.
            return
        self._check_call.add_done_callback(partial(self._checked, began))

    def _checked(self, began: float, call: Any) -> None:
        code = call.code()
        if code not in _SILENT_ENDS:
            self._heard()
        # The call stays where it is if the connection is dead, so that there is no second check.
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and self._heard_at < began:
            _log.info("the server is silent; opening another connection")
            self._dead(self)
        else:
            self._check_call = None
