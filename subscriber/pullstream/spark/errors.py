"""Errors of ingestion, in addition to the errors of calls."""

from __future__ import annotations

from pullstream_protocol.errors import PullstreamError


class SpoolError(PullstreamError, RuntimeError):
    """The spool cannot be used or has no room. No message was acknowledged because of it."""


class MissingSegment(SpoolError):
    """Spark asks again for a batch that the spool does not have."""


class IngestError(PullstreamError, RuntimeError):
    """An ingestion job cannot start, or has failed. Rows that it has written stay written."""
