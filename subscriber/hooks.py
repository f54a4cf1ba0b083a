"""How a subscription tells what happens in it: to logs, metrics and traces outside of the logic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from protocol.errors import RpcError

from .exceptions import AcknowledgeError
from .message import Message
from .statistics import Statistics
from .streaming.state import StateChange as StateChange

_log = logging.getLogger("pullstream.hooks")

# Takes a Message; with `subscribe_batch` a list of them. May be an `async def`.
Callback = Callable[[Any], Any]
RequestKind = Literal["acknowledge", "modify_ack_deadline"]
LeaseLoss = Literal["max_lease_duration", "expired"]


class Hooks:
    """Override what you want to know, and pass an instance to `subscribe(hooks=...)`.

    One instance may serve many subscriptions: each method is told which one it is, by full name.
    The methods run on the SDK's own threads, so they must be short, and they must not wait for the
    subscription. One that raises is logged and changes nothing (but what `wrap` raises,
    `subscribe` raises). A method that is not overridden costs nothing.
    """

    def subscribed(self, subscription: str, statistics: Callable[[], Statistics]) -> None:
        """A subscription begins; `statistics` may be called at any time, also after its end."""

    def wrap(self, subscription: str, callback: Callback) -> Callback:
        """What to run for each message instead of `callback`, which it has to call."""
        return callback

    def state_changed(self, subscription: str, change: StateChange) -> None:
        """The stream was opened, broke, or is over; `SubscriptionState.CLOSED` is the last."""

    def received(self, subscription: str, messages: Sequence[Message]) -> None:
        """The messages of one response came in."""

    def settled(
        self, subscription: str, acked: Sequence[Message], nacked: Sequence[Message]
    ) -> None:
        """Messages were acked or nacked; the server has not been told yet."""

    def extended(self, subscription: str, messages: int, seconds: int) -> None:
        """The leases of so many messages are prolonged to `seconds` from now."""

    def lease_lost(self, subscription: str, messages: Sequence[Message], why: LeaseLoss) -> None:
        """Messages are not ours any more, and will be delivered again.

        why: "max_lease_duration": given up as the user asked. "expired": the server said that the
        lease is over (exactly-once delivery).
        """

    def request_done(
        self,
        subscription: str,
        kind: RequestKind,
        ack_ids: int,
        seconds: float,
        error: RpcError | None,
    ) -> None:
        """A call about so many ack ids took `seconds`, and ended with `error` or well (None).

        A call that failed for a passing reason is made again, and told again.
        """

    def not_taken(self, subscription: str, failures: Mapping[str, AcknowledgeError]) -> None:
        """The server did not take an ack, nack or deadline change, for good; by ack id."""


class HookSet:
    """The hooks of one subscription. An event that no hook overrides costs one look-up."""

    def __init__(self, subscription: str, hooks: Sequence[Hooks]) -> None:
        self._subscription = subscription
        self._hooks = tuple(hooks)
        self._listening = {
            name: [getattr(hook, name) for hook in hooks if _overrides(hook, name)]
            for name, method in vars(Hooks).items()
            if callable(method)
        }

    def wrap(self, callback: Callback) -> Callback:
        """The callback inside the wrappers of all hooks, the first one outermost."""
        for hook in reversed(self._hooks):
            callback = hook.wrap(self._subscription, callback)
        return callback

    def listens_to(self, event: str) -> bool:
        """Whether a hook has its own method named `event`."""
        return bool(self._listening[event])

    def tell(self, event: str, *args: Any) -> None:
        """Call the method named `event` of every hook that has its own."""
        for method in self._listening[event]:
            try:
                method(self._subscription, *args)
            except BaseException:
                # SystemExit, too: the threads that tell have other things to do.
                _log.exception("hook %r raised", method)


def _overrides(hook: Hooks, name: str) -> bool:
    return getattr(type(hook), name) is not getattr(Hooks, name)
