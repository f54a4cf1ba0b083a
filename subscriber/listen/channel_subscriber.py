"""ChannelSubscriber: any number of keyed subscriptions to one publisher, by one long poll."""

from __future__ import annotations

from collections.abc import Callable

from protocol.clock import SYSTEM_CLOCK, Clock
from subscriber.futures import RunningFuture, ShutdownMode
from subscriber.rpc import Rpcs
from subscriber.streaming.callbacks import is_coroutine_function

from .interest import Interest, OnDone, OnFailure, OnMessage
from .link_thread import LinkThread
from .notices import ListenEvent
from .settings import ListenSettings


class ChannelSubscriber(RunningFuture):
    """Subscriptions to keys and channels of one publisher. Made by `SubscriberClient.listen`.

        listener = client.listen()
        listener.subscribe("jobs", "job-7", on_message=lambda message: print(message.data))

    However many there are, they cost the publisher one waiting call. Callbacks run one at a time on
    a thread of their own, in the order in which the publisher has published. They may call any
    method. While they do not keep up, no more is asked for, and what comes meanwhile waits at the
    publisher, as far as that keeps it.

    It is a future, too: `result()` blocks until it is closed and then returns True.

    Any thread may call any method.
    """

    def __init__(
        self,
        rpcs: Rpcs,
        settings: ListenSettings,
        on_event: Callable[[ListenEvent], object] | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__()
        self._link = LinkThread(rpcs, settings, clock, on_event=on_event, on_end=self._ended)

    def subscribe(
        self,
        channel: str,
        key: str | None = None,
        *,
        on_message: OnMessage,
        on_failure: OnFailure | None = None,
        on_done: OnDone | None = None,
    ) -> bool:
        """Listen to a key of a channel, or to all of it. What was published before is lost.

        Effective at once; the publisher is told in the background, in the order of the calls.

        Args:
            channel: of the broker, the full name of a topic.
            key: the ordering key; None: every message of the channel. Of a message of which both
                the key and the channel are subscribed to, the key's callback is told.
            on_message: called with a ChannelMessage.
            on_failure: called with the error that has ended the subscription, once: a
                ChannelFailure that was published, an RpcError when the publisher refuses it or
                cannot be reached. Default: it is logged.
            on_done: called once, with None when the publisher has taken the subscription, or with
                the error for which it has not.

        Returns:
            Whether it is new; False, and nothing is changed, if it is subscribed to already.

        Raises:
            TypeError: an argument is of the wrong kind.
            SubscriberClosed: it is closed.
            ForkedProcess: it was made before a fork, in the parent.
        """
        _check(channel, key, on_message, on_failure, on_done)
        self._check_process()
        return self._link.subscribe(Interest(channel, key, on_message, on_failure, on_done))

    def unsubscribe(self, channel: str, key: str | None = None) -> bool:
        """Listen no more. No message is told after it, but for one whose callback has begun.

        Returns:
            Whether it was subscribed to.
        """
        self._check_process()
        return self._link.unsubscribe(channel, key)

    def is_subscribed(self, channel: str, key: str | None = None) -> bool:
        """Whether it is subscribed to, as far as this side knows."""
        self._check_process()
        return self._link.is_subscribed(channel, key)

    def close(self, timeout: float | None = None) -> bool:
        """End all subscriptions, tell the publisher so, and wait until no callback runs.

        Args:
            timeout: seconds to wait for a callback under way. None: as long as it takes.

        Inside a callback it does not wait. No callback begins afterwards, but `on_done` of
        subscribes that had no answer, with Cancelled. Idempotent.

        Returns:
            Whether it is over.
        """
        return self._close_and_wait(timeout)

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """As `close`, but without waiting. There is nothing that a mode could change."""
        self._check_process()
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout is {timeout}; it must not be negative")
        self._link.stop(timeout)

    def runs_here(self) -> bool:
        return self._link.runs_here()

    def _ended(self, fault: Exception | None) -> None:
        if fault is None:
            self.set_result(True)
        else:
            self.set_exception(fault)

    def __enter__(self) -> ChannelSubscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(
    channel: object, key: object, on_message: object, on_failure: object, on_done: object
) -> None:
    if not isinstance(channel, str) or not channel:
        raise TypeError(f"channel is {channel!r}; it must be a name, a str")
    if key is not None and not isinstance(key, str):
        raise TypeError(f"key is {key!r}; it must be a str, or None for the whole channel")
    if not _is_plain(on_message):
        raise TypeError(f"on_message is {on_message!r}; it must be a plain function of one message")
    for name, callback in (("on_failure", on_failure), ("on_done", on_done)):
        if callback is not None and not _is_plain(callback):
            raise TypeError(f"{name} is {callback!r}; it must be a plain function of one error")


def _is_plain(callback: object) -> bool:
    """Whether it can be called. A coroutine function would not run when it is."""
    return callable(callback) and not is_coroutine_function(callback)
