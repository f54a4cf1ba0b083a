"""Errors of ingestion, in addition to the errors of calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from pullstream_protocol.errors import PullstreamError


class SpoolError(PullstreamError, RuntimeError):
    """The spool cannot be used or has no room. No message was acknowledged because of it."""


class DamagedFile(SpoolError):
    """A file of the spool is missing or damaged."""


class MissingSegment(SpoolError):
    """Spark asks again for a batch that the spool does not have."""


class FailureCause(Enum):
    """The part because of which an ingestion job has failed."""

    SOURCE = "subscription"
    TABLE = "table"
    STATE = "state"
    SPARK = "Spark"
    OTHER = "other"


class IngestError(PullstreamError, RuntimeError):
    """An ingestion job cannot start, or has failed. Rows that it has written stay written.

    Attributes:
        cause: The part that has failed; None: not known.
    """

    cause: FailureCause | None = None


def ingest_error(text: str, cause: FailureCause) -> IngestError:
    """Return an error with its cause."""
    error = IngestError(text)
    error.cause = cause
    return error


@contextmanager
def caused_by(part: FailureCause) -> Iterator[None]:
    """Set the cause of an IngestError of the block that has none."""
    try:
        yield
    except IngestError as error:
        error.cause = error.cause or part
        raise
