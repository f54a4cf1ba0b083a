"""`write.format("pubsub")` and `writeStream.format("pubsub")`: rows become messages of a topic.

At least once: Spark runs a task that failed, and a streaming batch that it did not see through,
again, and then publishes again what had been published. Within a partition the messages of an
ordering key keep their order; rows of a key that are spread over partitions have none, so
`repartition("ordering_key")` first where it matters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from .message_rows import check_columns, messages_of
from .sink_options import SinkOptions
from .sink_publisher import SinkPublisher

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("pullstream.spark")


@dataclass(frozen=True)
class Published(WriterCommitMessage):
    """What a task has published."""

    messages: int


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of one `write...save()`.

    Raises:
        ValueError: an option is unknown, missing or of the wrong form; a column is, too; or the
            mode is "overwrite".
    """
    if overwrite:
        raise ValueError(
            'mode is "overwrite", but what was published stays published; use mode("append")'
        )
    check_columns(schema)
    return BatchWriter(SinkOptions.of(options))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of a streaming query; errors as of `batch_writer`.

    `overwrite` is what Spark says in the output mode "complete": all rows of each batch are
    published, as in every other mode.
    """
    check_columns(schema)
    return StreamWriter(SinkOptions.of(options))


class BatchWriter(DataSourceArrowWriter):
    """Made on the driver, pickled, and called once for each partition on an executor."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _publish(iterator, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _tell_of(messages, "the job")


class StreamWriter(DataSourceStreamArrowWriter):
    """As `BatchWriter`, for each partition of each micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _publish(iterator, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _tell_of(messages, f"batch {batchId}")


def _publish(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Published:
    rows = (message for batch in batches for message in messages_of(batch))
    with SinkPublisher(
        options.topic, endpoint=options.endpoint, retry_for=options.retry_seconds
    ) as publisher:
        publisher.publish(rows)
        return Published(publisher.published)


def _tell_of(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """No message can be taken back: say how many will come again."""
    published = sum(one.messages for one in messages if isinstance(one, Published))
    _log.warning("%s failed after %d messages had been published in whole", what, published)
