"""Rules that make calls, apart from how these are waited for.

A generator yields a step, a call or a pause. Whoever runs it carries the step out, then goes on
with the generator, or throws into it what was raised. So the same rules serve threads and event
loops, and a test runs them without either.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from protocol.clock import Clock
from protocol.errors import Cancelled

from .request import routing_header
from .rpc import Rpcs, errors_of, to_error, wait_until
from .streaming.fork_barrier import BARRIER

T = TypeVar("T")


class Call:
    """A unary call. `timeout` is in seconds; None: no limit.

    lingers: the server may take its time. Then a thread waits for it in a way that is interrupted
        sooner, but costs a switch of threads.
    response: what the server answered. It may be there although the wait for it was interrupted.
    """

    __slots__ = ("_future", "_withdrawn", "lingers", "method", "request", "response", "timeout")

    def __init__(
        self, method: str, request: Message, timeout: float | None, *, lingers: bool = False
    ) -> None:
        self.method: str = method
        self.request: Message = request
        self.timeout: float | None = timeout
        self.lingers: bool = lingers
        self.response: Any = None
        self._future: Any = None
        self._withdrawn = False

    def make(self, rpcs: Rpcs) -> None:
        """Make the call on this thread, to its end. An interruption cancels it."""
        with BARRIER.waiting():
            self.response = self._invoke(rpcs.stub(self.method))

    def begin(self, rpcs: Rpcs) -> Any:
        """Start the call; gRPC's future."""
        self._future = future = self._invoke(partial(rpcs.begin, self.method))
        if self._withdrawn:
            future.cancel()
        return future

    def _invoke(self, function: Callable[..., Any]) -> Any:
        headers = (routing_header(self.request),)
        with errors_of(self.method):
            return function(self.request, timeout=self.timeout, metadata=headers)

    def end(self, future: Any) -> None:
        """The call is done: take its response, or raise its error."""
        try:
            self.response = future.result()
        except grpc.RpcError as error:
            raise to_error(error) from error
        except grpc.FutureCancelledError as error:
            raise Cancelled("the call was cancelled on this side") from error

    def withdraw(self) -> None:
        """Nobody waits any more for a call that `begin` has started, or is about to: the server is
        told. What has come already is in `response`. From any thread.

        `begin` notes the call, then looks at the flag; here it is the other way round. So whoever
        comes second sees the other.
        """
        self._withdrawn = True
        future = self._future
        if future is not None and not future.cancel() and future.code() is grpc.StatusCode.OK:
            self.response = future.result()


class Pause:
    """A wait until a moment on the monotonic clock."""

    __slots__ = ("until",)

    def __init__(self, until: float) -> None:
        self.until: float = until


Step = Call | Pause
Steps = Generator[Step, None, T]


def run(steps: Steps[T], rpcs: Rpcs, clock: Clock) -> T:
    """Carry out `steps` on the calling thread; returns what they return.

    A Ctrl-C is seen at once, or after 0.2 s at most: gRPC never waits longer in one go. The call
    under way is withdrawn, and the rules have the last word.
    """
    raised: BaseException | None = None
    while True:
        try:
            step = next(steps) if raised is None else steps.throw(raised)
        except StopIteration as end:
            result: T = end.value
            return result
        raised = None
        try:
            _carry_out(step, rpcs, clock)
        except BaseException as error:
            raised = error


def _carry_out(step: Step, rpcs: Rpcs, clock: Clock) -> None:
    if isinstance(step, Pause):
        wait_until(clock, step.until)
        return
    if step.lingers:
        _linger(step, rpcs)
    else:
        step.make(rpcs)


def _linger(step: Call, rpcs: Rpcs) -> None:
    """Wait for a call as long as the server takes, or until an interruption, which withdraws it.

    Python raises a KeyboardInterrupt on the main thread, anywhere: also within the start of a call,
    which then is under way with nobody to cancel it. So there another thread starts it.
    """
    started: Future[Any] = Future()

    def start() -> None:
        try:
            started.set_result(step.begin(rpcs))
        except Exception as error:
            started.set_exception(error)

    try:
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=start, name="pullstream-fetch", daemon=True).start()
        else:
            start()
        step.end(started.result())
    except Exception:
        raise
    except BaseException:
        step.withdraw()
        raise


async def run_async(steps: Steps[T], rpcs: Rpcs, clock: Clock) -> T:
    """As `run`, on the running event loop; a cancellation of the task is what a Ctrl-C is there."""
    raised: BaseException | None = None
    while True:
        try:
            step = next(steps) if raised is None else steps.throw(raised)
        except StopIteration as end:
            result: T = end.value
            return result
        raised = None
        try:
            await _await(step, rpcs, clock)
        except BaseException as error:
            raised = error


async def _await(step: Step, rpcs: Rpcs, clock: Clock) -> None:
    if isinstance(step, Pause):
        while (left := clock.timeout(step.until)) != 0.0:
            await asyncio.sleep(1.0 if left is None else left)
        return
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake(_future: object) -> None:
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    future = step.begin(rpcs)
    future.add_done_callback(wake)
    try:
        await done.wait()
    except BaseException:
        step.withdraw()
        raise
    step.end(future)
