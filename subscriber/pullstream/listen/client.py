"""Client method `listen`: subscribes to many keys and channels over one long poll."""

from __future__ import annotations

from collections.abc import Callable

from pullstream.rpc.background_client import BackgroundClient
from pullstream.runtime.callback_kinds import require_handler
from pullstream.runtime.validation import require_timeout

from .channel_subscriber import ChannelSubscriber
from .events import ListenEvent
from .session import ListenSettings


class ListeningClient(BackgroundClient):
    """Listens to channels of the broker or of another publisher."""

    def listen(
        self,
        on_event: Callable[[ListenEvent], object] | None = None,
        *,
        newest_only: bool = False,
        give_up_after: float | None = 30.0,
        poll_timeout: float | None = 360.0,
        max_batch: int = 2000,
    ) -> ChannelSubscriber:
        """Create a listener for channels: `listener.subscribe(channel, key, on_message=...)`.

        The server is the broker, where each topic is a channel, or any gRPC server with a
        `ChannelPublisher`. Nothing is sent before the first `subscribe`.

        Args:
            on_event: Called for lost messages, in order with the messages: with a Reset when the
                publisher has lost the session, with a Dropped when it has dropped messages because
                of its limit. Default: they are logged.
            newest_only: Let the publisher keep only the newest message of each key for this
                listener.
            give_up_after: After this many seconds without success, the publisher counts as gone,
                and all subscriptions fail. None: never.
            poll_timeout: The timeout of a long poll, in seconds. A publisher answers shortly before
                it, or after 330 s, with an empty response if there are no messages. A publisher
                that does not answer in time counts as failed. Choose a value below the timeouts of
                the proxies in between. None: no limit.
            max_batch: The most commands (to subscribe or unsubscribe) that are sent in one request,
                1 to 10,000.

        Returns:
            The listener. It ends with `close()`, or when the client is closed.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: An argument is out of range.
            SubscriberClosed: The client is closed.
            ForkedProcess: The client was created in the parent process, before a fork.
        """
        if on_event is not None:
            require_handler("on_event", on_event, "that takes one event")
        require_timeout("give_up_after", give_up_after)
        require_timeout("poll_timeout", poll_timeout)
        if not 1 <= max_batch <= 10_000:
            raise ValueError(f"max_batch is {max_batch}; it must be between 1 and 10000")
        settings = ListenSettings(
            newest_only=newest_only,
            give_up_after=give_up_after,
            poll_timeout=poll_timeout,
            max_batch=max_batch,
        )
        return self._keep(lambda: ChannelSubscriber(self._rpcs, settings, on_event))
