"""Clients for the unary RPCs of the Feeds service: topics as capped logs, read by position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from pullstream.rpc.paging import AsyncPager, Pager
from pullstream.rpc.request import message_of
from pullstream.rpc.rpcs import CallOptions
from pullstream.rpc.unary_client import AsyncUnaryClient, UnaryClient
from pullstream.runtime.validation import require_number, require_text
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .frames import Gap, gap_of
from .position import Start, position_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Dict = Mapping[str, Any]

# A record to append: its data (bytes, or text that is encoded as UTF-8), or a PubsubMessage, or a
# dict with the fields of a PubsubMessage.
NewRecord: TypeAlias = "str | bytes | pubsub.PubsubMessage | Dict"


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one `read`.

    Attributes:
        gap: The messages before these that cannot be read any more. None if nothing is lost.
        messages: The messages in the order of the feed. The ID of each message is its sequence
            number. The messages share memory.
        position: The position to continue from: `read(topic, after=reading.position)`.
        caught_up: True if the feed had no more messages when this was read.
        head_seq: The newest sequence number of the feed.
        earliest_seq: The oldest sequence number that can still be read.
    """

    gap: Gap | None
    messages: Sequence[pubsub.PubsubMessage] = field(repr=False)
    position: feeds.Position
    caught_up: bool
    head_seq: int
    earliest_seq: int


class FeedsClient(UnaryClient):
    """Manages feeds, and appends to and reads from them with unary calls: `client.feeds`."""

    def put(
        self,
        topic: str,
        config: feeds.FeedConfig | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> feeds.Feed:
        """Create a feed, or replace the settings of an existing one.

        The topic is created if it does not exist.

        Args:
            topic: The full name of the topic, `projects/P/topics/T`.
            config: All settings of the feed. They replace the previous settings completely:
                `{"ttl": timedelta(seconds=5), "cap_records": 10_000}` removes an earlier limit on
                bytes.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The feed. Its `created` is True if the feed is new.

        Raises:
            InvalidArgument: The name or a setting is invalid.
        """
        return self._call("PutFeed", feeds.Feed, None, options, topic=topic, config=config)

    def get(self, topic: str, **options: Unpack[CallOptions]) -> feeds.Feed:
        """Return a feed: its settings, its size and its sequence numbers.

        Args:
            topic: The full name of the topic, `projects/P/topics/T`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Raises:
            NotFound: The topic does not exist.
        """
        return self._call("GetFeed", feeds.Feed, None, options, topic=topic)

    def list(self, project: str, **options: Unpack[CallOptions]) -> Pager[feeds.Feed]:
        """List the feeds of a project.

        Args:
            project: The full name of the project, `projects/P`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            An iterable. It requests the next page when the iteration reaches it.
        """
        return self._list("ListFeeds", "feeds", None, options, project=project)

    def append(
        self,
        topic: str,
        records: Iterable[NewRecord],
        *,
        idempotency_key: str = "",
        create: bool = True,
        **options: Unpack[CallOptions],
    ) -> feeds.AppendResponse:
        """Append `records` with one call: either all of them or none.

        Args:
            topic: The full name of the topic, `projects/P/topics/T`.
            records: The records. Each is its data (bytes, or text that is encoded as UTF-8), a
                PubsubMessage, or a dict with the fields of a PubsubMessage: `data` (bytes),
                `attributes` (a dict of strings; `tag` and `node` have a meaning for feeds),
                `ordering_key`.
            idempotency_key: A second append with the same key, within the feed's window of 120 s,
                appends nothing and returns the first response with `deduped` set. Only with a key
                is the call retried when its response was lost.
            create: Create the topic if it does not exist.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The response with the sequence numbers of the new records.

        Raises:
            InvalidArgument: There are too many records, or a record is empty or too large.
            NotFound: The topic does not exist, and `create` is false.
            FailedPrecondition: The feed is full, and its settings do not allow it to discard
                records.
            ResourceExhausted: The broker has no room for more.
        """
        fields = _append_fields(topic, records, idempotency_key, create)
        return self._call("Append", feeds.AppendResponse, None, options, **fields)

    def delete_messages(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        filter: str | None = None,
        **options: Unpack[CallOptions],
    ) -> int:
        """Remove messages from a feed on purpose. Readers do not see this as a gap.

        With both conditions, only messages that meet both are removed.

        Args:
            topic: The full name of the topic, `projects/P/topics/T`.
            before_seq: Remove messages with a sequence number below this one.
            filter: Remove messages that match this filter.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The number of removed messages.
        """
        fields = {"topic": topic, "before_seq": before_seq, "filter": filter}
        response = feeds.DeleteMessagesResponse
        return self._call("DeleteMessages", response, None, options, **fields).deleted

    def read(
        self,
        topic: str,
        after: Start = 0,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        wait: float | None = None,
        filter: str | None = None,
        exclude_node: str | None = None,
        include_data: bool | None = None,
        **options: Unpack[CallOptions],
    ) -> Reading:
        """Read the messages after a position with one call.

        Args:
            topic: The full name of the topic, `projects/P/topics/T`.
            after: The sequence number of the last message that the reader has, 0 for none; or
                "tail" for the newest message; or the `position` of a Reading, or a Cursor. The last
                two also detect that the topic was deleted and created again in the meantime.
            max_messages: The most messages to return, at most 1000. Default: 256.
            max_bytes: The most bytes of messages to return, at most 8 MiB. Default: 256 KiB. A
                larger message is returned alone.
            wait: Seconds to wait for a first message, at most 30. Default: do not wait.
            filter: Return only messages that match, in the language of subscription filters.
                Default: the filter of the position.
            exclude_node: Leave out the records of this node.
            include_data: False returns messages without data, and of their attributes only `tag`
                and `node`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The messages. If the reader is too far behind, `gap` gives the messages that are lost.

        Raises:
            TypeError: `after` is not a position.
            ValueError: `after` is out of range, or is a cursor of another topic.
            NotFound: The topic does not exist.
        """
        fields = _read_fields(
            topic, after, max_messages, max_bytes, wait, filter, exclude_node, include_data
        )
        response = self._call("Read", feeds.ReadResponse, None, options, **fields)
        return _reading(fields["start"], response)


class AsyncFeedsClient(AsyncUnaryClient):
    """Manages, appends to and reads feeds on an event loop.

    It is `client.feeds` of an AsyncSubscriberClient. The methods are the methods of FeedsClient. A
    cancelled task withdraws its call.
    """

    async def put(
        self,
        topic: str,
        config: feeds.FeedConfig | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> feeds.Feed:
        """Create a feed, or replace the settings of an existing one; see `FeedsClient.put`."""
        return await self._call("PutFeed", feeds.Feed, options, topic=topic, config=config)

    async def get(self, topic: str, **options: Unpack[CallOptions]) -> feeds.Feed:
        """Return a feed: its settings, size and sequence numbers; see `FeedsClient.get`."""
        return await self._call("GetFeed", feeds.Feed, options, topic=topic)

    def list(self, project: str, **options: Unpack[CallOptions]) -> AsyncPager[feeds.Feed]:
        """List the feeds of a project for an `async for` loop; see `FeedsClient.list`."""
        return self._list("ListFeeds", "feeds", options, project=project)

    async def append(
        self,
        topic: str,
        records: Iterable[NewRecord],
        *,
        idempotency_key: str = "",
        create: bool = True,
        **options: Unpack[CallOptions],
    ) -> feeds.AppendResponse:
        """Append all of `records` or none of them; see `FeedsClient.append`.

        A cancelled append may have been carried out.
        """
        fields = _append_fields(topic, records, idempotency_key, create)
        return await self._call("Append", feeds.AppendResponse, options, **fields)

    async def delete_messages(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        filter: str | None = None,
        **options: Unpack[CallOptions],
    ) -> int:
        """Remove messages from a feed on purpose; see `FeedsClient.delete_messages`."""
        fields = {"topic": topic, "before_seq": before_seq, "filter": filter}
        response = feeds.DeleteMessagesResponse
        return (await self._call("DeleteMessages", response, options, **fields)).deleted

    async def read(
        self,
        topic: str,
        after: Start = 0,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        wait: float | None = None,
        filter: str | None = None,
        exclude_node: str | None = None,
        include_data: bool | None = None,
        **options: Unpack[CallOptions],
    ) -> Reading:
        """Read the messages after a position with one call; see `FeedsClient.read`."""
        fields = _read_fields(
            topic, after, max_messages, max_bytes, wait, filter, exclude_node, include_data
        )
        response = await self._call("Read", feeds.ReadResponse, options, **fields)
        return _reading(fields["start"], response)


def _append_fields(
    topic: str, records: Iterable[NewRecord], idempotency_key: str, create: bool
) -> dict[str, Any]:
    if isinstance(records, (str, bytes)) or not isinstance(records, Iterable):
        raise TypeError(f"records is {records!r:.80}; it must be a list of records")
    return {
        "topic": topic,
        "messages": [_message(record) for record in records],
        "idempotency_key": idempotency_key,
        "create": create,
    }


def _read_fields(
    topic: str,
    after: Start,
    max_messages: int | None,
    max_bytes: int | None,
    wait: float | None,
    filter: str | None,
    exclude_node: str | None,
    include_data: bool | None,
) -> dict[str, Any]:
    start = feeds.Position()
    start.CopyFrom(position_of(after, topic))
    if filter is not None:
        start.filter = require_text("filter", filter)
    return {
        "topic": topic,
        "start": start,
        "max_messages": max_messages,
        "max_bytes": max_bytes,
        "wait": None if wait is None else timedelta(seconds=require_number("wait", wait)),
        "exclude_node": exclude_node,
        "include_data": include_data,
    }


def _reading(start: feeds.Position, response: feeds.ReadResponse) -> Reading:
    """Return the result of a read that began at `start`."""
    return Reading(
        gap=gap_of(response.gap) if response.HasField("gap") else None,
        messages=response.messages,
        position=feeds.Position(
            after_seq=response.next_seq, epoch=response.epoch, filter=start.filter
        ),
        caught_up=response.caught_up,
        head_seq=response.head_seq,
        earliest_seq=response.earliest_seq,
    )


def _message(record: NewRecord) -> pubsub.PubsubMessage:
    if isinstance(record, str):
        return pubsub.PubsubMessage(data=require_text("record", record).encode())
    if isinstance(record, bytes):
        return pubsub.PubsubMessage(data=record)
    return message_of(pubsub.PubsubMessage, record)
