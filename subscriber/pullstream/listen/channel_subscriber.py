"""ChannelSubscriber: many keyed subscriptions to one publisher over one long poll."""

from __future__ import annotations

from collections.abc import Callable

from pullstream.futures import RunningFuture, ShutdownMode
from pullstream.rpc.rpcs import Rpcs
from pullstream.runtime.callback_kinds import require_handler
from pullstream.runtime.validation import require_text, require_wait_time
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .events import ListenEvent
from .session import ListenSettings
from .session_thread import SessionThread
from .subscription import ChannelSubscription, OnDone, OnFailure, OnMessage


class ChannelSubscriber(RunningFuture):
    """Subscriptions to keys and channels of one publisher, created by `SubscriberClient.listen`.

        listener = client.listen()
        listener.subscribe("jobs", "job-7", on_message=lambda message: print(message.data))

    All subscriptions together cost the publisher one waiting call. Callbacks run one at a time on a
    separate thread, in the order of publishing, and may call any method. While callbacks are too
    slow, the subscriber does not poll, and new messages wait at the publisher, up to the
    publisher's limit.

    The object is also a future: `result()` blocks until it is closed and then returns True. If a
    callback raises SystemExit or KeyboardInterrupt, the listener ends, and `result()` raises it.
    When the listener ends because of an error, `on_failure` of every subscription is called.

    Any thread may call any method.
    """

    def __init__(
        self,
        rpcs: Rpcs,
        settings: ListenSettings,
        on_event: Callable[[ListenEvent], object] | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__("a listener")
        self._session_thread = SessionThread(
            rpcs, settings, clock, on_event=on_event, on_end=self._ended
        )

    def subscribe(
        self,
        channel: str,
        key: str | None = None,
        *,
        on_message: OnMessage,
        on_failure: OnFailure | None = None,
        on_done: OnDone | None = None,
    ) -> bool:
        """Subscribe to a key of a channel, or to the whole channel.

        Earlier messages are not delivered. The method returns at once; the command is sent to the
        publisher in the background, in the order of the calls.

        Args:
            channel: The name of the channel. On the broker, the full name of a topic.
            key: The ordering key. None: every message of the channel. If both the key and the
                channel of a message are subscribed, only the key's callback is called.
            on_message: Called with each ChannelMessage.
            on_failure: Called once, with the error that has ended the subscription: a
                ChannelFailure that was published, or an RpcError if the publisher refuses the
                subscription or cannot be reached. Default: the error is logged.
            on_done: Called once: with None when the publisher has accepted the subscription, or
                with the error if it has not.

        Returns:
            Whether the subscription is new. If it exists already, nothing changes.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: The channel or the key has characters that UTF-8 cannot encode.
            SubscriberClosed: The listener is closed.
            ForkedProcess: The listener was created in the parent process, before a fork.
        """
        _check(channel, key, on_message, on_failure, on_done)
        self._fork.refuse_child()
        return self._session_thread.subscribe(
            ChannelSubscription(channel, key, on_message, on_failure, on_done)
        )

    def unsubscribe(self, channel: str, key: str | None = None) -> bool:
        """End a subscription.

        No callback for its messages starts after this returns. A running one may continue.

        Returns:
            Whether the subscription existed.
        """
        self._fork.refuse_child()
        return self._session_thread.unsubscribe(channel, key)

    def is_subscribed(self, channel: str, key: str | None = None) -> bool:
        """Return whether a subscription exists on this side. The publisher is not asked."""
        self._fork.refuse_child()
        return self._session_thread.is_subscribed(channel, key)

    def close(self, timeout: float | None = None) -> bool:
        """End all subscriptions, unregister from the publisher, and wait for the callbacks.

        No callback starts after this call, except `on_done` with Cancelled for subscriptions that
        the publisher has not answered. Does not wait if it is called inside a callback. Idempotent.

        Args:
            timeout: Seconds to wait for a running callback. None waits without a limit.

        Returns:
            Whether the listener has ended.
        """
        return self._close_and_wait(timeout)

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        """Start closing, without waiting. See `close`.

        Args:
            timeout: Seconds after which the future completes although a callback still runs.
            mode: Ignored.
        """
        self._fork.refuse_child()
        require_wait_time("timeout", timeout)
        self._session_thread.stop(timeout)

    def runs_here(self) -> bool:
        """Return whether the current thread is a thread of the listener."""
        return self._session_thread.runs_here()

    def _ended(self, fault: BaseException | None) -> None:
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
        raise TypeError(f"channel is {channel!r}; it must be a channel name, a non-empty str")
    if key is not None and not isinstance(key, str):
        raise TypeError(f"key is {key!r}; it must be a str, or None for the whole channel")
    # The listener encodes them later, together with those of other subscriptions.
    require_text("channel", channel)
    require_text("key", key or "")
    require_handler("on_message", on_message, "that takes one message")
    for name, callback in (("on_failure", on_failure), ("on_done", on_done)):
        if callback is not None:
            require_handler(name, callback, "that takes one error")
