"""The Feeds service: topics as capped logs, written to and read by position.

Methods take requests, keywords and call options as those of `subscriber.admin` do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from protocol.messages import feeds_pb2 as feeds
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.paging import Pager
from subscriber.request import make_message
from subscriber.rpc import CallOptions

from .frames import Gap, gap_of
from .position import Start, position_of
from .routers import CursorAdmin, RouterAdmin

if TYPE_CHECKING:
    from typing_extensions import Unpack

Dict = Mapping[str, Any]

# A record to append: its data, text as UTF-8; or a message, or the fields of one.
Record: TypeAlias = "str | bytes | pubsub.PubsubMessage | Dict"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one `read` brought.

    gap: messages before these that cannot be read any more; None if there are none.
    messages: in the order of the feed. The id of each is its number. They share memory.
    position: where to read on: `read(topic, after=reading.position)`.
    caught_up: there was no more when this was read.
    head_seq, earliest_seq: the newest number that was given, and the oldest that can be read.
    """

    gap: Gap | None
    messages: Sequence[pubsub.PubsubMessage] = field(repr=False)
    position: feeds.Position
    caught_up: bool
    head_seq: int
    earliest_seq: int


class FeedsClient(RouterAdmin, CursorAdmin):
    """Manages feeds, writes to them and reads them by single calls.

    Made like every client; see `ServiceClient`. A `SubscriberClient` has these methods, too.
    """

    def put_feed(
        self,
        request: feeds.PutFeedRequest | Dict | None = None,
        *,
        topic: str | None = None,
        config: feeds.FeedConfig | Dict | None = None,
        **options: Unpack[CallOptions],
    ) -> feeds.Feed:
        """Make a feed, and its topic if there is none, or give it other settings.

        All of `config` counts: `{"ttl": timedelta(seconds=5), "cap_records": 10_000}` has no limit
        of bytes, whatever there was before. `created` of what is returned tells whether the feed is
        new.

        Raises:
            InvalidArgument: the name or a setting is wrong.
        """
        fields = {"topic": topic, "config": config}
        return self._call("PutFeed", feeds.Feed, request, options, **fields)

    def get_feed(
        self,
        request: feeds.GetFeedRequest | Dict | None = None,
        *,
        topic: str | None = None,
        **options: Unpack[CallOptions],
    ) -> feeds.Feed:
        """A feed: its settings, how much it holds, its numbers."""
        return self._call("GetFeed", feeds.Feed, request, options, topic=topic)

    def list_feeds(
        self,
        request: feeds.ListFeedsRequest | Dict | None = None,
        *,
        project: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Pager[feeds.Feed]:
        """The feeds of a project, `projects/P`; later pages are got as they are reached."""
        return self._list("ListFeeds", "feeds", request, options, project=project)

    def append(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        idempotency_key: str = "",
        create: bool = True,
        **options: Unpack[CallOptions],
    ) -> feeds.AppendResponse:
        """Append `records` by one call, all of them or none; returns the numbers they were given.

        A record is its data (bytes, or text as UTF-8), or has the fields of a PubsubMessage: `data`
        (bytes), `attributes` (a dict of texts, among them `tag` and `node`), `ordering_key`.

        Args:
            idempotency_key: a second append with the same key, within the feed's window of 120 s,
                appends nothing and is answered as the first was, with `deduped`. With a key the
                call is tried again when its answer was lost.
            create: make a topic that does not exist.

        Raises:
            InvalidArgument: there are too many records, or one is empty or too large.
            NotFound: there is no such topic, and `create` is false.
            FailedPrecondition: the feed is full, and discards nothing.
            ResourceExhausted: the broker has no room for more.
        """
        fields = {
            "topic": topic,
            "messages": [_message(record) for record in records],
            "idempotency_key": idempotency_key,
            "create": create,
        }
        return self._call("Append", feeds.AppendResponse, None, options, **fields)

    def delete_messages(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        filter: str | None = None,
        **options: Unpack[CallOptions],
    ) -> int:
        """Remove messages from a feed on purpose; returns how many. Readers are not told.

        Those with a number below `before_seq`, or those that pass `filter`, or, with both, those
        below it that pass.
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
        """Read what comes after a position, by one call.

        Args:
            after: the number of the last message that the reader has, 0 for none; "tail" for the
                newest there is; the `position` of a Reading or a Cursor, which also tell when the
                topic was deleted and made again meanwhile.
            max_messages: at most 1000. Default: 256.
            max_bytes: of messages, at most 8 MiB. Default: 256 KiB. One message is always read.
            wait: seconds to wait for a first message, at most 30. Default: not at all.
            filter: only messages that pass, in the language of subscription filters. Default: the
                position's.
            exclude_node: leave out the records of this node.
            include_data: False for messages without data, and of their attributes tag and node
                only.

        A reader that is too far behind is told by `gap` what it has lost.

        Raises:
            TypeError, ValueError: `after` is no position in this topic.
            NotFound: there is no such topic.
        """
        start = feeds.Position()
        start.CopyFrom(position_of(after, topic))
        if filter is not None:
            start.filter = filter
        fields = {
            "topic": topic,
            "start": start,
            "max_messages": max_messages,
            "max_bytes": max_bytes,
            "wait": None if wait is None else timedelta(seconds=wait),
            "exclude_node": exclude_node,
            "include_data": include_data,
        }
        found = self._call("Read", feeds.ReadResponse, None, options, **fields)
        return Reading(
            gap=gap_of(found.gap) if found.HasField("gap") else None,
            messages=found.messages,
            position=feeds.Position(
                after_seq=found.next_seq, epoch=found.epoch, filter=start.filter
            ),
            caught_up=found.caught_up,
            head_seq=found.head_seq,
            earliest_seq=found.earliest_seq,
        )


def _message(record: Record) -> pubsub.PubsubMessage:
    if isinstance(record, str):
        return pubsub.PubsubMessage(data=record.encode())
    if isinstance(record, bytes):
        return pubsub.PubsubMessage(data=record)
    if isinstance(record, Mapping):
        return make_message(pubsub.PubsubMessage, record)
    return record
