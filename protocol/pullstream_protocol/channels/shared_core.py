"""SharedChannelCore: a ChannelCore for many threads."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Hashable

from pullstream_protocol.call_lock import CallLock
from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.errors import FailedPrecondition, RpcError, Unavailable
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import encoded_pb2 as encoded

from .core import ChannelCore
from .limits import ChannelLimits
from .session import Poll
from .statistics import ChannelStatistics, SessionStatistics


class SharedChannelCore:
    """The state of a publisher of channels, for the gRPC handlers and for the code that publishes.

    Any thread may call any method. A ChannelCore has all state, under one lock. The lock is held
    only during one operation on the state. No code waits while it holds the lock, and the only user
    code that runs under it is the `in` operator of `channels`.

    Args:
        channels: The allowed channel names: any object that supports `in`. None allows all names.
        limits: See ChannelLimits.
        clock: The clock of the failure detector.

    Attributes:
        longest_poll: A poll is answered after this many seconds, even if there is nothing to
            deliver.
        is_wanted: Returns whether a channel has a subscription. Any thread may call it without the
            lock.
    """

    def __init__(
        self,
        channels: Container[str] | None = None,
        limits: ChannelLimits | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._lock = CallLock()
        self._core = ChannelCore(
            limits or ChannelLimits(), new_incarnation=_new_incarnation, channels=channels
        )
        self.longest_poll = self._core.longest_poll
        self.is_wanted = self._core.is_wanted
        self._closed = False

    # ---- publishing ----------------------------------------------------------------------------

    def publish_encoded(self, channel: str, key: str, encode: Callable[[int], bytes]) -> int:
        """Publish a message that is encoded only if it has a subscriber.

        Args:
            channel: The name of the channel.
            key: The ordering key. "" if the message has none.
            encode: Returns the serialized PubsubMessage, given the sequence number. Called under
                the lock.

        Returns:
            The number of subscribers that get the message.

        Raises:
            FailedPrecondition: The publisher is closed.
        """
        with self._lock.once:
            self._check_open()
            return self._core.publish(channel, key, encode)

    def pass_over(self, count: int) -> None:
        """Count messages that were published without a subscriber."""
        with self._lock.once:
            self._core.pass_over(count)

    def publish_failure(self, channel: str, key: str | None, reason: str) -> int:
        """End the subscriptions to a key or a channel; see ChannelPublisher."""
        with self._lock.once:
            self._check_open()
            return self._core.publish_failure(channel, key, reason)

    def channel_gone(self, channel: str, reason: str) -> None:
        """End a channel that does not exist any more; see ChannelCore."""
        with self._lock.once:
            self._core.channel_gone(channel, reason)

    # ---- calls of subscribers ------------------------------------------------------------------

    def commands(
        self, request: channels.CommandsRequest, owner: Hashable = None
    ) -> channels.CommandsResponse:
        """Apply a batch of commands; see ChannelCore."""
        with self._lock.once:
            self._check_serving()
            return self._core.commands(request, self._clock.monotonic(), owner)

    def begin_poll(
        self, request: channels.PollRequest, wake: Callable[[Poll], None], owner: Hashable = None
    ) -> Poll:
        """Begin a long poll; see ChannelCore.

        Args:
            request: The request.
            wake: Called when the poll is ready, under the lock, by the thread that publishes.
            owner: See ChannelCore.
        """
        with self._lock.once:
            self._check_serving()
            return self._core.begin_poll(request, self._clock.monotonic(), wake, owner)

    def finish_poll(self, poll: Poll) -> encoded.EncodedPollResponse:
        """End a poll and return its response; see ChannelCore."""
        with self._lock.once:
            return self._core.finish_poll(poll, self._clock.monotonic())

    def withdraw_poll(self, poll: Poll) -> None:
        """End a poll without a response; see ChannelCore."""
        with self._lock.once:
            self._core.withdraw_poll(poll, self._clock.monotonic())

    def unregister(self, request: channels.UnregisterRequest, owner: Hashable = None) -> None:
        """End a session; see ChannelCore."""
        with self._lock.once:
            self._check_serving()
            self._core.unregister(request.subscriber_id, owner)

    # ---- time, and the end ---------------------------------------------------------------------

    @property
    def on_due(self) -> Callable[[float], None]:
        """Called with a monotonic time when `advance` becomes due; see ChannelCore."""
        return self._core.on_due

    @on_due.setter
    def on_due(self, on_due: Callable[[float], None]) -> None:
        self._core.on_due = on_due

    def next_due(self) -> float | None:
        """Return the monotonic time at which `advance` is due, or None."""
        return self._core.next_due()

    def advance(self) -> None:
        """Drop the subscribers that are gone."""
        with self._lock.once:
            self._core.advance(self._clock.monotonic())

    def statistics(self) -> ChannelStatistics:
        """Return the current statistics."""
        with self._lock.once:
            return self._core.statistics()

    def sessions(self, most: int) -> list[SessionStatistics]:
        """Return the statistics of the sessions; of the `most` oldest ones if there are more."""
        with self._lock.once:
            return self._core.sessions(most)

    def forget_all(self, error: RpcError | None = None) -> None:
        """Drop all subscribers. Their polls end with an empty response, or with `error`."""
        with self._lock.once:
            self._core.clear(error)

    def close(self) -> None:
        """End all polls with UNAVAILABLE, and refuse further calls and messages. Idempotent."""
        with self._lock.once:
            self._closed = True
            self._core.clear(Unavailable("The publisher is closed."))

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPrecondition("This ChannelPublisher is closed.")

    def _check_serving(self) -> None:
        if self._closed:
            raise Unavailable("The publisher is closed.")


def _new_incarnation() -> int:
    return secrets.randbelow(2**64 - 1) + 1
