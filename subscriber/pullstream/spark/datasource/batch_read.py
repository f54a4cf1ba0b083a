"""Bounded read: pulled once, readable any number of times, acknowledged by the caller."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .batch_pull import BatchSpool
from .options import READ, BatchOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("pullstream.spark")


class BatchRead:
    """Successive reads of a subscription, each acknowledged by the caller with `ack()`.

        read = BatchRead(subscription="projects/p/subscriptions/s", spoolDir="/data/s")
        read.load(spark).write.parquet(path)
        read.ack()

    The pulled messages are stored in `spoolDir`. Until they are acknowledged or discarded, the
    DataFrame has the same rows in each of its actions, and so has a later DataFrame, even of
    another process. So an interrupted job repeats its work on the same rows.

    Leases are not extended during the read. Rows that are acknowledged after `leaseSeconds` (600 by
    default) may have been redelivered; the next read from the same `spoolDir` leaves them out.

    Args:
        **options: The options of `spark.read.format("pubsub")`, described in docs/spark.md.

    Raises:
        ValueError: An option is unknown or missing, or its value is invalid.
        TypeError: A value has the wrong type.
    """

    def __init__(self, **options: str | int | float | bool | Path) -> None:
        self._texts = {name: _text(value) for name, value in options.items()}
        self._options = BatchOptions.parse(self._texts, files_are_shared=True)

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the DataFrame. The messages are pulled when Spark first plans to read it."""
        from .registration import register

        register(spark)
        # Without the number, the DataFrame would continue with other rows after `ack`, and the next
        # `ack` would acknowledge those although they are not stored.
        options = {**self._texts, READ: str(self._spool().state().next)}
        return spark.read.format("pubsub").options(**options).load()

    @property
    def rows(self) -> int:
        """Number of rows that were pulled and are not acknowledged."""
        return self._spool().state().rows

    @property
    def is_all(self) -> bool:
        """Whether the last read, acknowledged or not, got all available messages.

        False if it reached one of its limits (maxMessages, maxBytes or maxSeconds), so that there
        may be more, or if there was no read.
        """
        return self._spool().state().is_all

    def ack(self) -> int:
        """Acknowledge the rows, because the caller has stored its results.

        The server may redeliver rows whose acknowledgement it does not confirm within some seconds,
        or whose leases have expired. The next read from this `spoolDir` leaves them out.

        Returns:
            Number of rows.
        """
        return self._spool().ack()

    def _spool(self) -> BatchSpool:
        return BatchSpool(self._options.settings)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
