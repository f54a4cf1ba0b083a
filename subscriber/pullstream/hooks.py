"""Hooks: methods for logs, metrics and traces, which subscriptions and publishers call."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pullstream_protocol.errors import RpcError

from .exceptions import AcknowledgeError
from .message import Message
from .runtime.callback_kinds import is_coroutine_function, refuse_awaitable
from .runtime.lifecycle import StateChange as StateChange
from .runtime.repeated_errors import RepeatedErrors
from .statistics import PublisherStatistics, Statistics

_log = logging.getLogger("pullstream.hooks")

# Takes a Message or, with `subscribe_batch`, a list or columns of them. May be an `async def`.
Callback = Callable[[Any], Any]
RequestKind = Literal["acknowledge", "modify_ack_deadline"]
LeaseLoss = Literal["max_lease_duration", "expired"]


class Hooks:
    """Base class for monitoring. Override methods, and pass an instance as `hooks=`.

    One instance may serve many subscriptions: each method receives the full name of the
    subscription. The methods run on the SDK's threads, so they must be short and must not wait for
    the subscription. If a method raises, the error is logged and has no other effect; only an error
    of `wrap` is raised by `subscribe`. A method that is not overridden costs nothing.
    """

    def subscribed(self, subscription: str, statistics: Callable[[], Statistics]) -> None:
        """Called when a subscription begins.

        Args:
            subscription: Full name of the subscription.
            statistics: Returns the present Statistics. Works at any time, also after the end.
        """

    def wrap(self, subscription: str, callback: Callback) -> Callback:
        """Return the function to run for each message. It must call `callback`.

        Args:
            subscription: Full name of the subscription.
            callback: The callback, or the result of another hook's `wrap`.
        """
        return callback

    def state_changed(self, subscription: str, change: StateChange) -> None:
        """Called when the state changes. The last state is `SubscriptionState.CLOSED`.

        Args:
            subscription: Full name of the subscription.
            change: The new state, the previous one, and the cause.
        """

    def received(self, subscription: str, messages: Sequence[Message]) -> None:
        """Called when messages have been received.

        Args:
            subscription: Full name of the subscription.
            messages: The messages of one response.
        """

    def settled(
        self, subscription: str, acked: Sequence[Message], nacked: Sequence[Message]
    ) -> None:
        """Called when messages were acked or nacked, before the server receives the request.

        Args:
            subscription: Full name of the subscription.
            acked: The acked messages.
            nacked: The nacked messages.
        """

    def returned(self, subscription: str, messages: Sequence[Message]) -> None:
        """Called when the SDK returns messages that no callback has settled.

        Args:
            subscription: Full name of the subscription.
            messages: The returned messages.
        """

    def extended(self, subscription: str, messages: int, seconds: int) -> None:
        """Called when the SDK extends leases.

        Args:
            subscription: Full name of the subscription.
            messages: Number of leases.
            seconds: Seconds from now until the leases end.
        """

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        """Called when messages have lost their lease.

        The server redelivers them, unless it accepts a late acknowledgement.

        Args:
            subscription: Full name of the subscription.
            messages: The messages without a lease.
            why: "max_lease_duration": the SDK gave the messages up at the user's limit. "expired":
                the server reported that the lease is over (exactly-once delivery), or it ended
                while the process was stopped, before the callback began.
        """

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        """Called after each acknowledge or modify-ack-deadline request.

        A request that fails for a temporary reason is repeated; this method is called for each
        attempt.

        Args:
            subscription: Full name of the subscription.
            kind: "acknowledge" or "modify_ack_deadline".
            ack_ids: Number of ack IDs in the request.
            seconds: Duration of the request in seconds.
            error: The error of the request. None: it succeeded.
        """

    def refused(self, subscription: str, failures: Mapping[str, AcknowledgeError]) -> None:
        """Called for acks, nacks and deadline changes that the server has not confirmed.

        It has finally refused them, or has not answered in time, or the subscription has ended
        before the answer. `AcknowledgeError.may_have_succeeded` tells which may have taken effect.

        Args:
            subscription: Full name of the subscription.
            failures: The error for each ack ID.
        """


class PublisherHooks:
    """Base class for monitoring publishers. Override methods, and pass an instance as `hooks=`.

    One instance may serve many clients: each method receives the full name of the topic. The
    methods run on the SDK's threads, so they must be short and must not wait for a message. If a
    method raises, the error is logged and has no other effect. A method that is not overridden
    costs nothing.
    """

    def started(self, statistics: Callable[[], PublisherStatistics]) -> None:
        """Called when a client is created.

        Args:
            statistics: Returns the present PublisherStatistics. Works at any time.
        """

    def published(self, topic: str, messages: int, seconds: float) -> None:
        """Called when the server has confirmed the messages of a request.

        Args:
            topic: Full name of the topic.
            messages: Number of messages.
            seconds: Seconds since the first attempt.
        """

    def failed(self, topic: str, messages: int, error: BaseException) -> None:
        """Called when messages were not published, or not confirmed, and are not retried.

        Args:
            topic: Full name of the topic.
            messages: Number of messages.
            error: The error.
        """

    def request_done(
        self, topic: str, messages: int, size: int, seconds: float, error: BaseException | None
    ) -> None:
        """Called after each attempt of a publish request.

        Args:
            topic: Full name of the topic.
            messages: Number of messages in the request.
            size: Bytes of the request.
            seconds: Duration of the attempt in seconds.
            error: The error of the attempt. None: it succeeded.
        """


H = TypeVar("H")


def hooks_of(given: H | Sequence[H], base: type[H]) -> tuple[H, ...]:
    """Return the hooks that a user passes as `hooks=`: one object or several.

    Args:
        given: The hooks.
        base: The class of the hooks.

    Raises:
        TypeError: Something else was passed.
    """
    if isinstance(given, base):
        return (given,)
    if not isinstance(given, Sequence) or not all(isinstance(one, base) for one in given):
        raise TypeError(
            f"hooks is {given!r}; it must be a {base.__name__} object or a list of them"
        )
    return tuple(given)


class HookCalls:
    """Calls the methods that hooks override. An event that no hook overrides costs one look-up.

    Args:
        base: The base class of the hooks.
        hooks: The hooks.
    """

    def __init__(self, base: type[Any], hooks: Sequence[Any]) -> None:
        self._listening = {
            name: [
                getattr(hook, name)
                for hook in hooks
                if getattr(type(hook), name) is not getattr(base, name)
            ]
            for name, method in vars(base).items()
            if callable(method)
        }
        self._errors = RepeatedErrors(_log)
        for method in itertools.chain.from_iterable(self._listening.values()):
            if is_coroutine_function(method):
                raise TypeError(f"hook {method!r} is an async def; hooks must be plain functions")

    def listens_to(self, event: str) -> bool:
        """Return whether a hook overrides the method named `event`."""
        return bool(self._listening[event])

    def report_errors(self) -> None:
        """Log how many errors were counted and not logged, at the end."""
        self._errors.report_rest()

    def call(self, event: str, *args: Any) -> None:
        """Call the method named `event` of every hook that overrides it."""
        for method in self._listening[event]:
            try:
                refuse_awaitable(method(*args), method)
            except BaseException as error:
                # Including SystemExit: the threads that call hooks have other work.
                self._errors.report(error, f"hook {method!r} raised")


class HookSet(HookCalls):
    """The hooks of one subscription.

    Args:
        subscription: Full name of the subscription.
        hooks: The hooks.
    """

    def __init__(self, subscription: str, hooks: Sequence[Hooks]) -> None:
        super().__init__(Hooks, hooks)
        self._subscription = subscription
        self._hooks = tuple(hooks)

    @property
    def takes_messages(self) -> bool:
        """Whether a hook overrides a method to which messages are passed in the normal case.

        Messages that lose their leases are treated singly in any case.
        """
        return any(map(self.listens_to, ("received", "settled", "returned")))

    def wrap(self, callback: Callback) -> Callback:
        """Return the callback, wrapped by all hooks. The first hook is the outermost."""
        for hook in reversed(self._hooks):
            callback = hook.wrap(self._subscription, callback)
        return callback

    def tell(self, event: str, *args: Any) -> None:
        """Call the method named `event` of every hook that overrides it."""
        self.call(event, self._subscription, *args)
