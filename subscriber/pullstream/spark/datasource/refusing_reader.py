"""A stream reader that only reports why there is no other."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader


class RefusingReader(DataSourceStreamReader):
    """A reader whose methods raise an error.

    If `streamReader` raised it, PySpark (4.0 to 4.3) would report an UnboundLocalError instead,
    because it stops the reader that it did not get.

    Args:
        error: The error.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        """Raise the error: the first call of a new query."""
        raise self._error

    def partitions(self, *_: Any, **__: Any) -> NoReturn:
        """Raise the error: the first call of a query that repeats a batch."""
        raise self._error

    def latestOffset(self, *_: Any, **__: Any) -> NoReturn:  # noqa: N802
        """Raise the error."""
        raise self._error

    def read(self, *_: Any, **__: Any) -> NoReturn:
        """Raise the error."""
        raise self._error
