"""Sink for `write.format("pubsub")` and `writeStream.format("pubsub")`: publishes rows.

Delivery is at least once: Spark repeats a failed task or an unfinished streaming batch, which then
publishes again the messages that it had already published. Within a partition, the messages of an
ordering key keep their order. Rows of a key in several partitions have no order, so call
`repartition("ordering_key")` first if order matters.
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

from .message_rows import check_columns, encode_rows
from .options import SinkOptions
from .publisher import SinkPublisher

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("pullstream.spark")


@dataclass(frozen=True)
class Published(WriterCommitMessage):
    """Result of a task.

    Attributes:
        messages: Number of published messages.
    """

    messages: int


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer of one `write...save()`.

    Raises:
        ValueError: An option or a column is unknown, missing or invalid, or the mode is
            "overwrite".
    """
    if overwrite:
        raise ValueError(
            'mode is "overwrite", but published messages cannot be withdrawn; use mode("append")'
        )
    check_columns(schema)
    return BatchWriter(SinkOptions.parse(options))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Return the writer of a streaming query; errors as in `batch_writer`.

    Args:
        options: The options that Spark passes.
        schema: The columns of the rows.
        overwrite: True in the output mode "complete", where all rows of each batch are published,
            as in every other mode.
    """
    check_columns(schema)
    return StreamWriter(SinkOptions.parse(options))


class BatchWriter(DataSourceArrowWriter):
    """Writer of a batch: created on the driver, pickled, and called once per partition."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a partition, and return the number of messages in a `Published`."""
        return _publish(iterator, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log how many messages the failed job had published; they cannot be withdrawn."""
        _tell_of(messages, "the job")


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a streaming query: like `BatchWriter`, for each partition of each batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of a partition, and return the number of messages in a `Published`."""
        return _publish(iterator, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log how many messages the failed batch had published; a retry publishes them again."""
        _tell_of(messages, f"batch {batchId}")


def _publish(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Published:
    encoded = (encode_rows(batch, options.topic) for batch in batches)
    with SinkPublisher(options.topic, options.access, retry_for=options.retry_seconds) as publisher:
        publisher.publish(encoded)
        return Published(publisher.published)


def _tell_of(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Log how many messages will be published again, because none can be withdrawn."""
    published = sum(one.messages for one in messages if isinstance(one, Published))
    _log.warning("%s failed; its finished tasks had published %d messages", what, published)
