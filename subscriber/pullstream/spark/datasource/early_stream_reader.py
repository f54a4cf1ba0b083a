"""`readStream.format("pubsub")` for PySpark 4.0 and 4.1, whose `latestOffset` has no start."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START

from .options import DRAINED, StreamOptions
from .source_reader import Offset, SourceReader, position


class EarlyStreamReader(SourceReader):
    """The reader for PySpark 4.0 and 4.1.

    Spark calls `partitions` for each batch before it processes it, and `latestOffset` after it. At
    a restart it calls `partitions` with the newest planned offset as both arguments, then for the
    batch that is planned and not committed, if there is one. So the end of the last `partitions` is
    the start of the next batch (tests/spark_matrix/recorded_calls.py).

    Args:
        options: The options.

    Raises:
        ValueError: With these versions, a pipeline cannot acknowledge after the commit. Only the
            order of calls says that a batch is committed, and nothing in the calls themselves.
    """

    def __init__(self, options: StreamOptions) -> None:
        is_committed = options.settings.acknowledge is Acknowledge.COMMITTED
        if is_committed and not options.proven_by_table:
            raise ValueError(
                "option 'acknowledge' is 'committed', which needs PySpark 4.2 or later in a "
                "pipeline; set it to 'stored', or use pullstream ingest, whose table proves the "
                "commit, or pip install 'pyspark>=4.2'"
            )
        super().__init__(options)
        self._start: Offset = START._asdict()
        self._is_prepared = False

    def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802
        """Return the end of the next batch, or of the last one if there are no messages.

        Raises:
            EOFError: All available messages are read, and the query is to end then.
        """
        session = self.running()
        if self._options.until_drained and not self._is_prepared:
            session.prepare_available_now()
            self._is_prepared = True
        end = session.latest(position(self._start))._asdict()
        if self._options.until_drained and end == self._start and session.is_caught_up:
            raise EOFError(DRAINED)
        return end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Divide the rows of the batch, and note its end as the start of the next one."""
        self._start = end
        return super().partitions(start, end)
