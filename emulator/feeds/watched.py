"""One topic of a watch: where its reader stands, and what it is told next."""

from __future__ import annotations

from emulator.engine.moment import Moment
from protocol.messages import encoded_pb2 as encoded
from protocol.messages import feeds_pb2 as feeds

from . import resume_token
from .feed import Feed
from .place import Place, is_of_another_life
from .selection import Limits, Selection

CaughtUp = feeds.Frame.CaughtUp
TopicDeleted = feeds.Frame.TopicDeleted
Messages = encoded.EncodedFrame.EncodedMessages


class Watched:
    """A reader's position in one feed. Belongs to one watch.

    A frame is made when it is asked for, of what the feed has then: a reader that is slow gets
    larger frames, and after a loss a gap in the place of what was lost. What it is told, in order:
    a gap if there is one, messages, and CaughtUp when it has come to the end after it was behind.

    seq: it has everything up to here.
    is_ready: there may be a frame to make, so it stands in the watch's queue.
    is_over: it was told that the topic is deleted.
    entry: its part of a resume token.
    """

    __slots__ = (
        "_came_too_late",
        "_is_behind",
        "_is_of_another_life",
        "_selection",
        "_seq",
        "entry",
        "feed",
        "is_over",
        "is_ready",
    )

    def __init__(self, feed: Feed, place: Place, selection: Selection) -> None:
        self.feed = feed
        self.is_ready = False
        self.is_over = False
        self._selection = selection
        self._begin_at(place)

    @property
    def seq(self) -> int:
        return self._seq

    def _begin_at(self, place: Place) -> None:
        feed = self.feed
        self._is_of_another_life = is_of_another_life(place, feed)
        self._came_too_late = feed.gap(place.seq) is not None
        # Until it has been told that there is no more.
        self._is_behind = True
        self._move(place.seq, place.epoch or feed.epoch)

    def _move(self, seq: int, epoch: int) -> None:
        self._seq = seq
        self.entry = resume_token.entry(self.feed.name, seq, epoch)

    def rewind(self, place: Place) -> None:
        """Go back to an earlier position, also of a former life of the topic; never ahead."""
        is_earlier = place.epoch == self.feed.epoch and place.seq < self._seq
        if is_earlier or place.epoch not in (0, self.feed.epoch):
            self._begin_at(place)

    def begin(self) -> None:
        """A stream begins. What the one before has told of the end may not have arrived: its reader
        is told once that there is no more, and that the topic is deleted."""
        self._is_behind = True
        self.is_over = False

    def start(self) -> feeds.Frame.Start:
        feed = self.feed
        return feeds.Frame.Start(
            after_seq=self._seq,
            head_seq=feed.head,
            earliest_seq=feed.earliest,
            epoch=feed.epoch,
        )

    @property
    def has_more(self) -> bool:
        """Whether there may be another frame to make now."""
        if self.is_over:
            return False
        return self._is_behind or self._seq != self.feed.head or self.feed.is_closed

    def next_frame(self, limits: Limits, now: Moment) -> encoded.EncodedFrame | None:
        """The next frame, without its token; None if there is nothing to tell.

        None may also mean that it has looked at many records and its reader wants none of them:
        see `has_more`.
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
        before = self._seq
        batch = self._selection.read(feed, before, limits)
        if batch.next_seq != before:
            self._move(batch.next_seq, feed.epoch)
        is_at_head = self._seq == feed.head
        if batch.messages:
            self._is_behind |= not is_at_head
            return encoded.EncodedFrame(
                messages=Messages(
                    topic=feed.name,
                    messages=batch.messages,
                    from_seq=before,
                    to_seq=self._seq,
                    head_seq=feed.head,
                )
            )
        if is_at_head and (self._is_behind or self._seq != before):
            # Also if all that came is kept back from this reader: it may resume behind it.
            self._is_behind = False
            caught_up = CaughtUp(topic=feed.name, head_seq=feed.head)
            caught_up.time.FromMilliseconds(int(now.wall * 1000))
            return encoded.EncodedFrame(caught_up=caught_up)
        return None

    def _gap(self) -> feeds.Gap | None:
        if self._is_of_another_life:
            self._is_of_another_life = False
            self._came_too_late = False
            return self.feed.recreated()
        gap = self.feed.gap(self._seq)
        if self._came_too_late:
            self._came_too_late = False
            if gap is not None and gap.reason in (feeds.CAP, feeds.TTL, feeds.MIXED):
                gap.cause, gap.reason = gap.reason, feeds.FROM_SEQ_TOO_OLD
        return gap
