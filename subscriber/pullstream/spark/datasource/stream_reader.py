"""`readStream.format("pubsub")`: Spark's stream reader, implemented by a SourceSession."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .source_reader import Offset, SourceReader, position


class PubSubStreamReader(SourceReader, SupportsTriggerAvailableNow):
    """The reader for PySpark 4.2 and later, which pass the start of a batch."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit from the option `maxMessagesPerTrigger`."""
        return ReadMaxRows(self._options.settings.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end when it has read the present backlog."""
        self.running().prepare_available_now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch, or `start` if there are no messages.

        A call with `start` proves that everything before `start` is committed.
        """
        from pullstream.spark.settings import Limit

        match limit:
            case ReadMaxRows(max_rows):
                bound = Limit(messages=max_rows)
            case ReadMaxBytes(max_bytes):
                bound = Limit(bytes=max_bytes)
            case _:
                bound = Limit()
        return self.running().latest(position(start), bound)._asdict()

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Return the `latestOffset` of the source in a query's progress."""
        return None if self._session is None else self._session.report()
