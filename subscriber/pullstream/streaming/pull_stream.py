"""One stream of a subscription: its reader thread, its heartbeats and its state."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Protocol

from pullstream.rpc.calls import StreamCall
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.scheduling.inline_run import InlineRun
from pullstream.statistics import StreamStatistics
from pullstream_protocol.clock import Clock
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .consumer import CANCEL_WAIT, Consumer
from .heartbeater import Heartbeater
from .stream import ReceivedResponse, Response, ResumingStream


class StreamCalls(Protocol):
    """The calls of one stream until it has ended."""

    def streaming_pull(self, first: pubsub.StreamingPullRequest) -> StreamCall:
        """Begin a streaming pull with its first request."""

    def reconnect(self) -> None:
        """Begin the next stream on another connection."""

    def close(self) -> None:
        """Close the channel of the stream, and open no more streams."""


class PullStreamListener(Protocol):
    """Receives the responses and events of streams, each on the thread that reads the stream."""

    def stream_changed(self, cause: RpcError | None) -> None:
        """Handle a change of a stream's state. `cause`: the error that broke the stream, if any."""

    def response_received(self, arrival: ReceivedResponse) -> None:
        """Handle a response."""

    def stream_ended(self, error: Exception) -> None:
        """Handle the final end of a stream (StreamEnded: this client closed it)."""


class PullStream:
    """One stream of a subscription, which is reopened when it breaks.

    Owns the reader thread, the heartbeats and the connection. The manager starts and stops it, and
    flow control pauses it, from any thread. The reader's thread writes the state and the counters.

    Args:
        calls: The RPCs of this stream.
        clock: Measures time.
        first_request: Makes the request that opens a stream, without the client id.
        listener: Receives responses and events.
        gives_up_at: Returns when to make the last attempt; see ResumingStream.
        parse: Parses a response.

    Attributes:
        state: CONNECTING, STREAMING or RECONNECTING.
    """

    def __init__(
        self,
        calls: StreamCalls,
        clock: Clock,
        *,
        first_request: Callable[[], pubsub.StreamingPullRequest],
        listener: PullStreamListener,
        gives_up_at: Callable[[float], float],
        parse: Callable[[bytes], Response],
    ) -> None:
        self.state = SubscriptionState.CONNECTING
        self._calls = calls
        self._first_request = first_request
        self._listener = listener
        # The same for all calls of this stream, so that a server can recognise a reconnect.
        self._client_id = str(uuid.uuid4())
        self._opened = self._received = self._received_bytes = 0
        self._stream = ResumingStream(
            clock,
            start=calls.streaming_pull,
            first_request=self._identified_request,
            listener=self,
            gives_up_at=gives_up_at,
            parse=parse,
        )
        self._heartbeater = Heartbeater(
            clock,
            ping=lambda: self._stream.send(pubsub.StreamingPullRequest()),
            on_silence=self._server_is_silent,
        )
        self._consumer = Consumer(
            self._stream, on_response=self._on_response, on_end=listener.stream_ended
        )

    def start_heartbeats(self) -> None:
        """Start the thread that sends pings.

        Raises:
            RuntimeError: The process cannot start more threads.
        """
        self._heartbeater.start()

    def start_reading(self) -> None:
        """Start the reader thread, which opens the stream.

        Raises:
            RuntimeError: The process cannot start more threads.
        """
        self._consumer.start()

    def last_worked(self, now: float) -> float:
        """Return when the stream last worked; see ResumingStream."""
        return self._stream.last_worked(now)

    def pause(self) -> None:
        """Read no responses after the current one."""
        self._consumer.pause()
        self._heartbeater.paused()

    def resume(self) -> None:
        """Read responses again."""
        self._heartbeater.resumed()
        self._consumer.resume()

    def inline_run(self) -> InlineRun | None:
        """Begin to run callbacks on the reader's thread; see Consumer."""
        return self._consumer.inline_run()

    def statistics(self) -> StreamStatistics:
        """Return a snapshot of the state and the counters."""
        return StreamStatistics(
            state=self.state,
            received=self._received,
            received_bytes=self._received_bytes,
            reopened=max(self._opened - 1, 0),
        )

    # ---- the shutdown's thread -----------------------------------------------------------------

    def half_close(self) -> None:
        """End the stream for good; the remaining responses of the server are still read."""
        self._stream.close()

    def stop_reading(self, timeout: float = CANCEL_WAIT) -> None:
        """End the stream and its reader thread; see `Consumer.stop`."""
        self._consumer.stop(timeout)

    def stop_heartbeats(self, timeout: float | None = None) -> None:
        """End the thread that sends pings. Idempotent.

        Args:
            timeout: Seconds to wait for it.
        """
        self._heartbeater.stop(timeout)

    def hang_up(self) -> None:
        """Close the connection of the stream."""
        self._calls.close()

    # ---- the stream (the reader's thread) ------------------------------------------------------

    def _identified_request(self) -> pubsub.StreamingPullRequest:
        request = self._first_request()
        request.client_id = self._client_id
        return request

    def stream_opened(self) -> None:
        """Count the stream, and begin heartbeats on it."""
        self._opened += 1
        self._heartbeater.opened()

    def stream_received(self) -> None:
        """Enter the state STREAMING, because the server answers on this stream."""
        self.state = SubscriptionState.STREAMING
        self._listener.stream_changed(None)

    def stream_broken(self, cause: RpcError | None) -> None:
        """Suspend heartbeats, and enter the state RECONNECTING because of `cause`."""
        self._heartbeater.closed()
        self.state = SubscriptionState.RECONNECTING
        self._listener.stream_changed(cause)

    def _on_response(self, arrival: ReceivedResponse) -> None:
        count = len(arrival.response.received_messages)
        self._heartbeater.received(is_pong=not count)
        self._received += count
        self._received_bytes += arrival.size
        self._listener.response_received(arrival)

    # ---- silence (heartbeater's thread) --------------------------------------------------------

    def _server_is_silent(self) -> None:
        # A new stream on the old connection would be silent, too.
        self._stream.reset("the server stopped answering heartbeats", self._calls.reconnect)
