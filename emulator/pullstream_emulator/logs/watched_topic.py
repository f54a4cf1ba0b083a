"""One topic of a watch: the reader's position in it, and the next frame for the reader."""

from __future__ import annotations

from pullstream_emulator.engine.now import Now
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import feeds_pb2 as feeds

from . import resume_token
from .feed import Feed
from .reader_position import ReaderPosition, is_of_other_incarnation
from .selection import Limits, Selection

CaughtUp = feeds.Frame.CaughtUp
TopicDeleted = feeds.Frame.TopicDeleted
Messages = encoded.EncodedFrame.EncodedMessages


class WatchedTopic:
    """A reader's position in one feed. Belongs to one watch.

    A frame is built when the stream asks for it, from the records that the feed has at that time.
    A slow reader therefore gets larger frames, and a gap if records were lost before it read them.
    Order of frames: a gap if there is one, then messages, then CaughtUp when a reader that was
    behind reaches the end.

    Args:
        feed: The topic's feed.
        position: Position to start at.
        selection: The records that the reader wants.

    Attributes:
        seq: The reader has every record up to this number.
        is_ready: There may be a frame to build, so this topic is in the watch's queue.
        is_over: The reader was told that the topic is deleted.
        entry: This topic's part of the resume token.
    """

    __slots__ = (
        "_came_too_late",
        "_is_behind",
        "_is_of_other_incarnation",
        "_selection",
        "entry",
        "feed",
        "is_over",
        "is_ready",
        "seq",
    )

    def __init__(self, feed: Feed, position: ReaderPosition, selection: Selection) -> None:
        self.feed = feed
        self.is_ready = False
        self.is_over = False
        self._selection = selection
        self._begin_at(position)

    def _begin_at(self, position: ReaderPosition) -> None:
        feed = self.feed
        self._is_of_other_incarnation = is_of_other_incarnation(position, feed)
        self._came_too_late = feed.gap(position.seq) is not None
        # True until the reader gets a CaughtUp frame.
        self._is_behind = True
        self._move(position.seq, position.epoch or feed.epoch)

    def _move(self, seq: int, epoch: int) -> None:
        self.seq = seq
        self.entry = resume_token.entry(self.feed.name, seq, epoch)

    def rewind(self, position: ReaderPosition) -> None:
        """Go back to an earlier position or to one of a former incarnation; never forward."""
        is_earlier = position.epoch == self.feed.epoch and position.seq < self.seq
        if is_earlier or position.epoch not in (0, self.feed.epoch):
            self._begin_at(position)

    def begin(self) -> None:
        """Begin a stream.

        The last frames of the previous stream may not have arrived, so the reader gets one CaughtUp
        frame again, or TopicDeleted.
        """
        self._is_behind = True
        self.is_over = False

    def start(self) -> feeds.Frame.Start:
        """Return the position and the state of the feed, for the first frame of a stream."""
        feed = self.feed
        return feeds.Frame.Start(
            after_seq=self.seq,
            head_seq=feed.head,
            earliest_seq=feed.earliest,
            epoch=feed.epoch,
        )

    @property
    def has_more(self) -> bool:
        """Whether there may be another frame to build now."""
        if self.is_over:
            return False
        return self._is_behind or self.seq != self.feed.head or self.feed.is_closed

    def next_frame(self, limits: Limits, now: Now) -> encoded.EncodedFrame | None:
        """Return the next frame, without its token; None if there is no frame.

        None may also mean that the feed was searched and the selection wants none of the records
        that were examined: see `has_more`.
        """
        feed = self.feed
        if feed.is_closed:
            self.is_over = True
            return encoded.EncodedFrame(topic_deleted=TopicDeleted(topic=feed.name))
        feed.trim(now)
        gap = self._gap()
        if gap is not None:
            self._is_behind = True
            self._move(gap.to_seq, feed.epoch)
            return encoded.EncodedFrame(gap=gap)
        before = self.seq
        batch = self._selection.read(feed, before, limits)
        if batch.next_seq != before:
            self._move(batch.next_seq, feed.epoch)
        is_at_head = self.seq == feed.head
        if batch.messages:
            self._is_behind |= not is_at_head
            return encoded.EncodedFrame(
                messages=Messages(
                    topic=feed.name,
                    messages=batch.messages,
                    from_seq=before,
                    to_seq=self.seq,
                    head_seq=feed.head,
                )
            )
        if is_at_head and (self._is_behind or self.seq != before):
            # Also when the selection dropped every new record: the reader may resume after them.
            self._is_behind = False
            caught_up = CaughtUp(topic=feed.name, head_seq=feed.head)
            caught_up.time.FromMilliseconds(int(now.wall * 1000))
            return encoded.EncodedFrame(caught_up=caught_up)
        return None

    def _gap(self) -> feeds.Gap | None:
        if self._is_of_other_incarnation:
            self._is_of_other_incarnation = False
            self._came_too_late = False
            return self.feed.recreated()
        gap = self.feed.gap(self.seq)
        if self._came_too_late:
            self._came_too_late = False
            if gap is not None and gap.reason in (feeds.CAP, feeds.TTL, feeds.MIXED):
                gap.cause, gap.reason = gap.reason, feeds.FROM_SEQ_TOO_OLD
        return gap
