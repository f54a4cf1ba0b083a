"""Random faults, one after the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack

import grpc

from pullstream_emulator import Emulator
from pullstream_emulator.faults import Faults
from pullstream_protocol import errors

_PASSING = (
    errors.Unavailable,
    errors.Internal,
    errors.Aborted,
    errors.DeadlineExceeded,
    errors.ResourceExhausted,
    errors.Unknown,
)
_OUTCOMES = ("Acknowledge", "ModifyAckDeadline")


class Chaos:
    """Causes faults of one broker. `step` causes one, and returns its name and duration.

    Args:
        dice: The only source of randomness, so that a run can be repeated as far as threads allow.
        longest: The longest duration of a fault in seconds.
    """

    def __init__(self, broker: Emulator, dice: random.Random, *, longest: float) -> None:
        self.broker = broker
        self._dice = dice
        self._longest = longest
        self._until_next = ExitStack()
        self._kinds: tuple[Callable[[Faults], str], ...] = (
            self._latency,
            self._latency,
            self._slow_stream,
            self._refused,
            self._refused_by_id,
            self._lost_replies,
            self._no_answer,
            self._aborted,
            self._closed,
            self._silent,
            self._black_hole,
        )

    def step(self) -> tuple[str, float]:
        """End the last fault, and begin the next."""
        self._until_next.close()
        if self._dice.random() < 0.08:
            return self._restart(), 1.0
        what = self._dice.choice(self._kinds)(self.broker.faults)
        return what, self._dice.uniform(0.2, self._longest)

    def stop(self) -> None:
        """End all faults."""
        self._until_next.close()
        self.broker.faults.clear()

    def _restart(self) -> str:
        old = self.broker
        old.stop()
        self.broker = Emulator(port=old.port, broker=old.broker).start()
        return "broker restarted"

    def _error(self) -> errors.RpcError:
        return self._dice.choice(_PASSING)("The soak wants it so.")

    def _latency(self, faults: Faults) -> str:
        method, seconds = self._dice.choice(_OUTCOMES), self._dice.uniform(0.0, 0.3)
        self._until_next.enter_context(faults.delay(method, seconds))
        return f"{method} takes {seconds:.2f} s"

    def _slow_stream(self, faults: Faults) -> str:
        self._until_next.enter_context(faults.delay("StreamingPull", 0.05))
        return "responses come slowly"

    def _refused(self, faults: Faults) -> str:
        method, error = self._dice.choice(_OUTCOMES), self._error()
        times = self._dice.randint(1, 20)
        details = self._dice.random() < 0.5
        self._until_next.enter_context(faults.error(method, error, times, details))
        return f"{method} ends with {errors.code_name(error)}, {times} times"

    def _refused_by_id(self, faults: Faults) -> str:
        def some(request: object) -> errors.RpcError | None:
            ids = list(getattr(request, "ack_ids", ()))
            named = dict.fromkeys(ids[::2], "TRANSIENT_FAILURE_INVALID_ACK_ID")
            return errors.FailedPrecondition("Some failed.", reason="SOME", metadata=named)

        self._until_next.enter_context(faults.error("Acknowledge", some, 5))
        return "every other ack id fails for now"

    def _lost_replies(self, faults: Faults) -> str:
        method = self._dice.choice(_OUTCOMES)
        code = self._dice.choice(_PASSING).grpc_status_code
        assert isinstance(code, grpc.StatusCode)
        self._until_next.enter_context(faults.lose_reply(method, 10, code))
        return f"replies of {method} are lost"

    def _no_answer(self, faults: Faults) -> str:
        method = self._dice.choice(_OUTCOMES)
        self._until_next.enter_context(faults.drop(method, 2))
        return f"{method} is not answered, twice"

    def _aborted(self, faults: Faults) -> str:
        error = self._error()
        faults.abort_streams(error)
        return f"streams end with {errors.code_name(error)}"

    def _closed(self, faults: Faults) -> str:
        faults.close_streams()
        return "streams end with OK"

    def _silent(self, faults: Faults) -> str:
        self._until_next.enter_context(faults.silence_streams())
        return "streams are silent"

    def _black_hole(self, faults: Faults) -> str:
        self._until_next.enter_context(faults.black_hole())
        return "the broker hangs"
