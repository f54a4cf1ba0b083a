"""`client.listen`: any number of keys and channels over one long poll."""

from __future__ import annotations

from collections.abc import Callable

from subscriber.arguments import patience
from subscriber.background import BackgroundClient
from subscriber.streaming.callbacks import is_coroutine_function

from .channel_subscriber import ChannelSubscriber
from .notices import ListenEvent
from .settings import ListenSettings


class ListeningClient(BackgroundClient):
    """Listens to channels, of the broker or of any other publisher."""

    def listen(
        self,
        on_event: Callable[[ListenEvent], object] | None = None,
        *,
        newest_only: bool = False,
        give_up_after: float | None = 30.0,
        poll_timeout: float | None = 360.0,
        max_batch: int = 2000,
    ) -> ChannelSubscriber:
        """Begin to listen to keys of channels: `listener.subscribe(channel, key, on_message=...)`.

        The server is the broker, whose channels are its topics, or any gRPC server that offers a
        `ChannelPublisher`. Nothing is sent before something is subscribed to.

        Args:
            on_event: told of losses, in order with the messages: a Reset, when the publisher had
                forgotten us, or Dropped, when it has kept no more. Default: they are logged.
            newest_only: let the publisher keep only the newest message of each key for us.
            give_up_after: seconds without success after which the publisher is taken to be gone,
                and all subscriptions have failed. None: never.
            poll_timeout: seconds for a long poll. A publisher answers shortly before, with nothing
                if need be, or after 330 s; one that does not is taken to be gone. Shorter than what
                proxies on the way allow is best. None: no limit.
            max_batch: subscribes and unsubscribes that go to the publisher together, at most.

        Returns:
            The listener; `close()` ends it, as does closing the client.

        Raises:
            TypeError, ValueError: an argument is of the wrong kind, or out of its range.
            SubscriberClosed: this client is closed.
            ForkedProcess: this client was made before a fork, in the parent.
        """
        if on_event is not None and (not callable(on_event) or is_coroutine_function(on_event)):
            raise TypeError(f"on_event is {on_event!r}; it must be a plain function of one event")
        patience("give_up_after", give_up_after)
        patience("poll_timeout", poll_timeout)
        if not 1 <= max_batch <= 10_000:
            raise ValueError(f"max_batch is {max_batch}; it must be between 1 and 10000")
        settings = ListenSettings(
            newest_only=newest_only,
            give_up_after=give_up_after,
            poll_timeout=poll_timeout,
            max_batch=max_batch,
        )
        return self._keep(lambda: ChannelSubscriber(self._rpcs, settings, on_event))
