"""PublisherClient: publishes messages in the background."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import grpc
from google.protobuf.message import Message as ProtobufMessage

from pullstream.hooks import PublisherHooks, hooks_of
from pullstream.rpc.endpoint import ClientArguments, ConnectionArguments
from pullstream.rpc.request import message_of
from pullstream.runtime.process import ForkCheck
from pullstream.runtime.validation import require_text, require_timeout
from pullstream.statistics import PublisherStatistics
from pullstream.topics import TopicAdmin
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .encoding import (
    HEADS,
    SHORT,
    check_size,
    encode_attributes,
    encode_message,
    encode_ordering_key,
)
from .outcome import PublishFuture, PublishManyFuture
from .sender import PublishSender
from .settings import (
    DEFAULT,
    BatchSettings,
    PublishDefault,
    PublisherOptions,
    PublishPolicy,
    checked_batch_settings,
    checked_options,
    policy_of,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pullstream.telemetry.publish_tracing import PublishSpan, PublishTracer

# What `publish_many` takes for one message: data, or a message of ours or of the official client.
OneMessage = Any


class PublisherClient(TopicAdmin):
    """Publishes messages to topics, and manages topics.

    Messages are sent in batches in the background; each has a future. Names and defaults are the
    official client's. Thread-safe.

        with PublisherClient() as publisher:
            future = publisher.publish("projects/p/topics/t", b"data", origin="example")
            message_id = future.result()

    A `with` statement, `close`, and the end of the program send all messages.
    """

    # Whether flow control may block the thread that calls `publish`.
    _may_block: ClassVar[bool] = True

    def __init__(
        self,
        batch_settings: BatchSettings | tuple[Any, ...] = (),
        publisher_options: PublisherOptions | tuple[Any, ...] = (),
        *,
        hooks: PublisherHooks | Sequence[PublisherHooks] = (),
        **connection: Unpack[ClientArguments],
    ) -> None:
        """Create a client. It connects when the first message is sent.

        Args:
            batch_settings: When a batch of messages is sent. Default: at 100 messages, 1 MB, or
                10 ms after the first message.
            publisher_options: Ordering, flow control, retries, hedging and compression.
            hooks: One PublisherHooks object or several, which are called on events.
            **connection: The arguments of `SubscriberClient`: endpoint, client_options, token,
                credentials, channel, channel_credentials, ca, cert, key.

        Raises:
            TypeError, ValueError: A setting has the wrong type or is out of range.
            ImportError: Tracing is enabled and opentelemetry-api is not installed.
        """
        self._settings = checked_batch_settings(batch_settings)
        self._options = options = checked_options(publisher_options)
        self._policy = policy_of(options.retry, options.timeout, PublishPolicy())
        self._hooks = hooks_of(hooks, PublisherHooks)
        self._tracer: PublishTracer | None = None
        if options.enable_open_telemetry_tracing:
            from pullstream.telemetry.publish_tracing import PublishTracer

            self._tracer = PublishTracer()
        super().__init__(**connection)

    def _connect(self, channel: grpc.Channel | None, arguments: ConnectionArguments) -> None:
        super()._connect(channel, arguments)
        self._fork = ForkCheck()
        self._sender = PublishSender(self._rpcs, self._settings, self._options, self._hooks)
        self._send = self._sender.publishing_method(may_block=self._may_block)
        # A client that is dropped without a close leaves no threads, and loses no message.
        hang_up = self._connections.close_all
        weakref.finalize(self, self._sender.release, hang_up).atexit = False

    def publish(
        self,
        topic: str,
        data: bytes | pubsub.PubsubMessage | Any,
        ordering_key: str = "",
        retry: Any = DEFAULT,
        timeout: float | PublishDefault | Any = DEFAULT,
        **attributes: str | bytes,
    ) -> PublishFuture:
        """Publish a message in the background.

        The message waits for others up to `max_latency` of BatchSettings. If a caller waits for the
        future, the message is sent as soon as nothing else is in flight. With
        `LimitExceededBehavior.BLOCK`, this method waits for room.

        Args:
            topic: Full name, `projects/P/topics/T`.
            data: The data, or a PubsubMessage, also of the official client, with data, attributes
                and ordering key.
            ordering_key: Messages with the same key are delivered in the order of these calls.
                Requires `enable_message_ordering`. Default: no key, no order.
            retry: A `google.api_core.retry.Retry`, or None for a single attempt. Default: as in
                PublisherOptions.
            timeout: Seconds for each attempt; None: no limit. Default: `timeout` of
                PublisherOptions.
            **attributes: The attributes.

        Returns:
            The future of the message ID.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: There is an ordering key without `enable_message_ordering`, the message has
                neither data nor attributes, or an attribute is too long or has a reserved name
                (`goog...`).
            MessageTooLargeError: The server accepts no message of this size.
            PublisherClosed: The client is closed.
            ForkedProcess: Another process created the client.
        """
        if (
            type(topic) is str
            and type(data) is bytes
            and 0 < len(data) < SHORT
            and not ordering_key
            and not attributes
            and retry is DEFAULT
            and timeout is DEFAULT
            and self._tracer is None
        ):
            # The same as below, for the most common messages.
            return self._send(topic, "", HEADS[len(data)] + data, self._policy)
        if not isinstance(topic, str):
            require_text("topic", topic, "the full name of a topic, a str")
        policy = self._policy_of(retry, timeout)
        content, key, given = _parts_of(data, ordering_key, attributes)
        if self._tracer is None:
            return self._send(topic, key, self._encode(topic, content, key, given), policy)
        span = self._tracer.begin(topic, content, key)
        try:
            entry = self._encode_traced(topic, content, key, given, span)
            future = self._send(topic, key, entry, policy)
        except BaseException as error:
            span.end_with(error)
            raise
        future.add_done_callback(span.end)
        return future

    def _policy_of(self, retry: Any, timeout: Any) -> PublishPolicy:
        if retry is DEFAULT and timeout is DEFAULT:
            return self._policy
        return policy_of(retry, timeout, self._policy)

    def _encode(
        self, topic: str, data: bytes, ordering_key: str, attributes: Mapping[str, str | bytes]
    ) -> bytes:
        """Return the encoded message; for its errors, see `publish`."""
        if ordering_key:
            self._require_ordering()
            if not isinstance(ordering_key, str):
                raise TypeError(f"ordering_key is {ordering_key!r:.80}; it must be a str")
        if not data and not attributes:
            raise ValueError(
                "the message is empty; Pub/Sub requires data or at least one attribute"
            )
        suffix = encode_attributes(attributes) if attributes else b""
        if ordering_key:
            suffix += encode_ordering_key(ordering_key)
        entry = encode_message(data, suffix)
        check_size(topic, entry)
        return entry

    def _encode_traced(
        self,
        topic: str,
        data: bytes,
        ordering_key: str,
        attributes: Mapping[str, str | bytes],
        span: PublishSpan,
    ) -> bytes:
        """Return the encoded message with the context of its span, if there is room for it."""
        try:
            return self._encode(topic, data, ordering_key, {**span.carrier, **attributes})
        except ValueError:
            return self._encode(topic, data, ordering_key, attributes)

    def _require_ordering(self) -> None:
        if not self._options.enable_message_ordering:
            raise ValueError(
                "a message has an ordering key, but ordering is not enabled; create the client "
                "with publisher_options=PublisherOptions(enable_message_ordering=True)"
            )

    def publish_many(
        self,
        topic: str,
        messages: Iterable[OneMessage],
        *,
        retry: Any = DEFAULT,
        timeout: float | PublishDefault | Any = DEFAULT,
    ) -> PublishManyFuture:
        """Publish many messages in the background, in requests as large as possible.

        This is faster than `publish` for messages that exist already. Neither BatchSettings nor
        PublishFlowControl apply. Messages with the same ordering key keep their order.

        Args:
            topic: Full name, `projects/P/topics/T`.
            messages: For each message its data, or a PubsubMessage, also of the official client.
            retry: See `publish`.
            timeout: See `publish`.

        Returns:
            One future for all: the list of message IDs in the order of the messages. If a request
            fails, it raises a PublishError with the IDs of the others.

        Raises:
            TypeError, ValueError: As for `publish`. Nothing is published.
            PublisherClosed: The client is closed.
            ForkedProcess: Another process created the client.
        """
        require_text("topic", topic, "the full name of a topic, a str")
        policy = self._policy_of(retry, timeout)
        if isinstance(messages, (str, bytes)) or not isinstance(messages, Iterable):
            raise TypeError(f"messages is {messages!r:.80}; it must be a list of messages")
        messages = list(messages)
        sizes = list(map(len, messages)) if set(map(type, messages)) == {bytes} else []
        if sizes and min(sizes) > 0 and max(sizes) < SHORT and self._tracer is None:
            # The same as below, for the most common messages.
            plain = [HEADS[size] + data for size, data in zip(sizes, messages, strict=True)]
            groups = {"": (plain, range(len(plain)))}
            return self._sender.publish_many(topic, groups, len(plain), policy)
        spans = []
        entries: dict[str, tuple[list[bytes], list[int]]] = {}
        for position, one in enumerate(messages):
            data, key, attributes = _parts_of(one, "", {})
            if self._tracer is not None:
                span = self._tracer.begin(topic, data, key)
                spans.append(span)
                entry = self._encode_traced(topic, data, key, attributes, span)
            else:
                entry = self._encode(topic, data, key, attributes)
            of_key, positions = entries.setdefault(key, ([], []))
            of_key.append(entry)
            positions.append(position)
        future = self._sender.publish_many(topic, entries, len(messages), policy)
        for span in spans:
            future.add_done_callback(span.end)
        return future

    def resume_publish(self, topic: str, ordering_key: str) -> None:
        """Accept messages of an ordering key again after a failure paused it.

        Args:
            topic: Full name, `projects/P/topics/T`.
            ordering_key: The key. If it is not paused, this method has no effect.

        Raises:
            ValueError: Ordering is not enabled.
            PublisherClosed: The client is closed.
        """
        require_text("topic", topic, "the full name of a topic, a str")
        require_text("ordering_key", ordering_key)
        self._require_ordering()
        self._sender.resume(topic, ordering_key)

    def statistics(self) -> PublisherStatistics:
        """Return the counters and the present load. Works at any time."""
        return self._sender.statistics()

    def stop(self) -> None:
        """Send all waiting messages, and accept no more. Does not wait for the results.

        Raises:
            PublisherClosed: The client is closed already. It is a RuntimeError, as in the official
                client.
        """
        self._sender.stop()

    def close(self, timeout: float | None = None) -> None:
        """Send all messages, wait until each has a result, and close the connection. Idempotent.

        In a fork of the process that created the client, this method does nothing.

        Args:
            timeout: Seconds to wait. The futures of the remaining messages then fail with
                PublisherClosed, and a warning with their number is logged. None (default): wait
                until the retries give up.

        Raises:
            ValueError: `timeout` is not above 0.
        """
        require_timeout("timeout", timeout)
        if self._fork.is_child:
            return
        self._sender.close(timeout)
        super().close()

    @property
    def closed(self) -> bool:
        """Whether `stop` or `close` was called."""
        return self._sender.stopped


# The official client's name.
Client = PublisherClient


def _parts_of(
    message: Any, ordering_key: str, attributes: Mapping[str, str | bytes]
) -> tuple[bytes, str, Mapping[str, str | bytes]]:
    """Return data, ordering key and attributes, which a PubsubMessage brings along.

    Raises:
        TypeError: It is neither bytes nor a message.
        ValueError: Key or attributes were given twice.
    """
    if isinstance(message, bytes):
        return bytes(message), ordering_key, attributes
    ours = message
    if isinstance(getattr(message, "_pb", message), ProtobufMessage):
        ours = message_of(pubsub.PubsubMessage, message)
    if not isinstance(ours, pubsub.PubsubMessage):
        hint = "; encode it: data.encode()" if isinstance(message, str) else ""
        raise TypeError(f"data is {message!r:.80}; it must be bytes or a PubsubMessage{hint}")
    if ordering_key or attributes:
        raise ValueError(
            "the message is a PubsubMessage, which has its own ordering key and attributes; set "
            "them there"
        )
    return ours.data, ours.ordering_key, dict(ours.attributes)
