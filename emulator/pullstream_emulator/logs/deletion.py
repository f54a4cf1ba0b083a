"""One DeleteMessages request, run in steps because a window may have a million records."""

from __future__ import annotations

from collections.abc import Callable

from pullstream_emulator.error_texts import invalid_argument, too_small
from pullstream_protocol.errors import NotFound
from pullstream_protocol.messages import feeds_pb2 as feeds

from .feed import Feed
from .selection import filter_of

# Records that one step examines. With a filter each is parsed, which takes a microsecond. At most
# 4 MB of them, because parsing copies the data.
MAX_EXAMINED = 1000
MAX_EXAMINED_BYTES = 4 * 1024 * 1024

# Records deleted in one batch. The save after each batch examines all remaining records.
MAX_DELETED = 5000


class Deletion:
    """Removes the records that match the request from a feed's window, oldest first.

    Records appended while the deletion runs are not deleted. `work` is one step on the event loop
    that owns the engine; `finish` is the last step.

    Args:
        request: The request.
        feed_of: Returns the feed of a topic.

    Raises:
        InvalidArgument: A field of the request is out of range.
    """

    def __init__(
        self, request: feeds.DeleteMessagesRequest, feed_of: Callable[[str], Feed]
    ) -> None:
        if request.before_seq < 0:
            raise too_small("before_seq", request.before_seq, 0)
        if not request.before_seq and not request.filter:
            raise invalid_argument("one of before_seq and filter must be set")
        self._accepts = filter_of(request.filter)
        self._feed = feed_of(request.topic)
        self._end = min(request.before_seq or self._feed.head + 1, self._feed.head + 1)
        self._examined = 0
        self._found: list[int] = []
        self._deleted = 0

    def work(self) -> bool:
        """Examine some records and delete one full batch; return whether there is more to do.

        Raises:
            NotFound: The topic was deleted in the meantime.
        """
        if self._feed.is_closed:
            raise NotFound(f"The topic {self._feed.name} was deleted before all its records were.")
        if len(self._found) > MAX_DELETED:
            self._deleted += self._feed.delete(self._found[:MAX_DELETED])
            del self._found[:MAX_DELETED]
            return True
        size = 0
        records = self._feed.kept_after(self._examined, MAX_EXAMINED)
        for record in records:
            size += record.size
            if record.seq >= self._end:
                return len(self._found) > MAX_DELETED
            if self._accepts is None or self._accepts(record.message().attributes):
                self._found.append(record.seq)
            self._examined = record.seq
            if self._accepts is not None and size > MAX_EXAMINED_BYTES:
                return True
        return len(records) == MAX_EXAMINED or len(self._found) > MAX_DELETED

    def finish(self) -> int:
        """Delete the last batch; return how many records were deleted in total."""
        last = self._feed.delete(self._found)
        if self._deleted and not last:
            # The response waits for the newest change to be stored. Save again, because that change
            # was made by an earlier step.
            self._feed.save()
        return self._deleted + last
