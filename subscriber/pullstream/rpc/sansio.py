"""Sans-I/O rules that make calls: generators, and their drivers for threads and event loops.

A generator yields a step, which is a call or a sleep. The driver carries the step out, and then
resumes the generator or throws the step's error into it. So threads and event loops share the same
rules, and a test can run them without either.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from pullstream.runtime.fork_barrier import BARRIER
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import Cancelled, RpcError

from .calls import PendingCall
from .named_errors import LIST_TIMEOUT, search_similar
from .request import routing_header
from .rpcs import Metadata, Rpcs, begin_or_wait, errors_of, to_error, wait_until

T = TypeVar("T")


class UnaryCall:
    """A unary call.

    Args:
        method: Name of the RPC.
        request: The request.
        timeout: Seconds for the call. None: no limit.
        metadata: Additional gRPC metadata, besides the header of every call.
        lingers: Whether the server may take long to answer. If so, a thread waits for it in a form
            that can be interrupted sooner, but costs a thread switch.

    Attributes:
        response: The server's answer. It may be set although the wait for it was interrupted.
    """

    __slots__ = (
        "_future",
        "_withdrawn",
        "lingers",
        "metadata",
        "method",
        "request",
        "response",
        "timeout",
    )

    def __init__(
        self,
        method: str,
        request: Message,
        timeout: float | None,
        *,
        metadata: Metadata = (),
        lingers: bool = False,
    ) -> None:
        self.method: str = method
        self.request: Message = request
        self.timeout: float | None = timeout
        self.metadata: Metadata = metadata
        self.lingers: bool = lingers
        self.response: Any = None
        self._future: Any = None
        self._withdrawn = False

    def make(self, rpcs: Rpcs) -> None:
        """Make the call on this thread and wait for its end. An interruption cancels it."""
        with BARRIER.waiting():
            self.response = self._invoke(rpcs.stub(self.method))

    def begin(self, rpcs: Rpcs) -> Any:
        """Begin the call; return gRPC's future."""
        self._future = future = self._invoke(partial(rpcs.begin, self.method))
        if self._withdrawn:
            future.cancel()
        return future

    def begin_or_wait(self, rpcs: Rpcs, encoded: bytes) -> PendingCall:
        """Begin the call; if no thread is available for that, make it. See `rpcs.begin_or_wait`.

        Args:
            rpcs: Makes the call.
            encoded: The request, serialized.
        """
        begin = partial(begin_or_wait, rpcs, self.method)
        call: PendingCall = self._invoke(begin, encoded)
        return call

    def _invoke(self, function: Callable[..., Any], encoded: bytes | None = None) -> Any:
        headers = (*self.metadata, routing_header(self.request))
        request = self.request if encoded is None else encoded
        with errors_of(self.method):
            return function(request, timeout=self.timeout, metadata=headers)

    def end(self, future: Any) -> None:
        """Take the response of a call that is done, or raise its error."""
        try:
            self.response = future.result()
        except grpc.RpcError as error:
            raise to_error(error, self.method) from None
        except grpc.FutureCancelledError as error:
            raise Cancelled("the client cancelled the call") from error

    def withdraw(self) -> None:
        """Cancel a call that `begin` has started or is about to start. Any thread may call it.

        If the answer has arrived, it is kept in `response`.

        `begin` stores the call and then reads the flag. This method sets the flag and then reads
        the stored call. So the second of the two sees the first.
        """
        self._withdrawn = True
        future = self._future
        if future is not None and not future.cancel() and future.code() is grpc.StatusCode.OK:
            self.response = future.result()


class Sleep:
    """A sleep until a time on the monotonic clock.

    Args:
        until: The time in seconds.
    """

    __slots__ = ("until",)

    def __init__(self, until: float) -> None:
        self.until: float = until


Step = UnaryCall | Sleep
Steps = Generator[Step, None, T]


def naming(
    error: RpcError, method: str, meant: Iterable[str], metadata: Metadata = ()
) -> Steps[None]:
    """Add the kind and the full name of a missing resource; the steps of `Rpcs.name_resource`."""
    search = search_similar(error, method, meant)
    if search is not None:
        step = UnaryCall(search.method, search.request, LIST_TIMEOUT, metadata=metadata)
        # The caller may lack the right to list.
        with suppress(RpcError):
            yield step
            search.add_to_error(step.response)


def run(steps: Steps[T], rpcs: Rpcs, clock: Clock) -> T:
    """Carry out `steps` on the calling thread; return their result.

    A Ctrl-C takes effect at once, or within 0.2 s, the longest time for which gRPC waits at a
    stretch. The current call is then withdrawn, and the generator decides about the error.

    Args:
        steps: The generator.
        rpcs: Makes the calls.
        clock: Source of the time.
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
    if isinstance(step, Sleep):
        wait_until(clock, step.until)
        return
    if step.lingers:
        _linger(step, rpcs)
    else:
        step.make(rpcs)


def _linger(step: UnaryCall, rpcs: Rpcs) -> None:
    """Wait for a call until the server answers, or until an interruption, which withdraws it.

    On the main thread, Python may raise a KeyboardInterrupt at any point, also while a call is
    being started. That call would be under way and could not be cancelled. So another thread starts
    the call in this case.
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
    """Carry out `steps` on the running event loop; return their result.

    A cancellation of the task has the same effect as a Ctrl-C in `run`.

    Args:
        steps: The generator.
        rpcs: Makes the calls.
        clock: Source of the time.
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
            await _await(step, rpcs, clock)
        except BaseException as error:
            raised = error


async def _await(step: Step, rpcs: Rpcs, clock: Clock) -> None:
    if isinstance(step, Sleep):
        while (left := clock.timeout(step.until)) != 0.0:
            await asyncio.sleep(1.0 if left is None else left)
        return
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake(_future: object) -> None:
        # On a closed loop, nothing waits.
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
