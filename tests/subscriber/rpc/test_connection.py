"""When a connection checks its server, and when it counts as dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import grpc
import pytest

from pullstream.rpc.connection import ANSWER_WITHIN, SILENT_CALL, SILENT_WAIT, Connection
from pullstream_protocol.clock import ManualClock

LATE, OK = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK


class Check:
    """A check under way, as a future of gRPC."""

    def __init__(self) -> None:
        self._done: Callable[[Any], None] = lambda _: None
        self._code = OK

    def add_done_callback(self, done: Callable[[Any], None]) -> None:
        self._done = done

    def code(self) -> grpc.StatusCode:
        return self._code

    def end(self, code: grpc.StatusCode) -> None:
        self._code = code
        self._done(self)


class Channel:
    """A channel that records its checks."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def unary_unary(self, path: str) -> Channel:
        return self

    def future(self, request: bytes, timeout: float) -> Check:
        self.checks.append(Check())
        return self.checks[-1]


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.channel = Channel()
        self.dead: list[Connection] = []
        channel = cast(grpc.Channel, self.channel)
        self.connection = Connection(channel, self.clock, self.dead.append)

    def call(self, seconds: float, code: grpc.StatusCode) -> None:
        """Make a call that ends after a time."""
        token = self.connection.began()
        self.clock.advance(seconds)
        self.connection.ended(token, code)

    @property
    def checks(self) -> list[Check]:
        return self.channel.checks


def test_a_connection_is_closed_if_the_check_after_an_overdue_call_is_not_answered() -> None:
    """One check is enough, and it is made once."""
    rig = Rig()
    rig.call(SILENT_CALL, LATE)
    rig.call(SILENT_CALL, LATE)
    (check,) = rig.checks
    rig.clock.advance(ANSWER_WITHIN)
    check.end(LATE)
    assert rig.dead == [rig.connection]
    rig.call(SILENT_CALL, LATE)
    assert (len(rig.checks), len(rig.dead)) == (1, 1)


def test_several_short_calls_without_an_answer_together_trigger_a_connection_check() -> None:
    """A fetch waits for five seconds only."""
    rig = Rig()
    for _ in range(int(SILENT_CALL / 5) - 1):
        rig.call(5, LATE)
    assert rig.checks == []
    rig.call(5, LATE)
    assert len(rig.checks) == 1


@pytest.mark.parametrize("code", [OK, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE])
def test_any_answer_of_the_server_even_an_error_prevents_a_connection_check(
    code: grpc.StatusCode,
) -> None:
    """An error shows it, too; if gRPC has lost the connection, it opens another itself."""
    rig = Rig()
    rig.call(SILENT_CALL - 1, LATE)
    rig.call(1, code)
    rig.call(SILENT_CALL - 1, LATE)
    assert rig.checks == []


@pytest.mark.parametrize("code", [OK, grpc.StatusCode.UNIMPLEMENTED])
def test_any_answer_to_a_connection_check_keeps_the_connection_open(code: grpc.StatusCode) -> None:
    """Most servers do not have the method of the check, and say so."""
    rig = Rig()
    rig.call(SILENT_CALL, LATE)
    rig.checks[0].end(code)
    assert rig.dead == []
    rig.call(SILENT_CALL, LATE)
    assert len(rig.checks) == 2


def test_an_answer_to_another_call_during_a_connection_check_keeps_the_connection_open() -> None:
    """The check itself may be behind a large response."""
    rig = Rig()
    rig.call(SILENT_CALL, LATE)
    rig.call(1, OK)
    rig.checks[0].end(LATE)
    assert rig.dead == []


def test_a_call_that_waits_too_long_for_an_answer_triggers_a_connection_check() -> None:
    """The time to look is known; without a call there is none."""
    rig = Rig()
    assert rig.connection.next_check() is None
    began = rig.clock.monotonic()
    rig.connection.began()
    assert rig.connection.next_check() == began + SILENT_WAIT
    rig.connection.check_if_due()
    assert rig.checks == []
    rig.clock.advance(SILENT_WAIT)
    rig.connection.check_if_due()
    assert len(rig.checks) == 1


def test_an_answer_to_one_call_postpones_the_connection_check_of_other_waiting_calls() -> None:
    rig = Rig()
    rig.connection.began()
    rig.call(20, OK)
    assert rig.connection.next_check() == rig.clock.monotonic() + SILENT_WAIT
