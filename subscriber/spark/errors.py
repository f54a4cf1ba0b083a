"""What an ingestion raises, beyond the errors of calls."""

from __future__ import annotations

from protocol.errors import PullstreamError


class SpoolError(PullstreamError, RuntimeError):
    """The spool cannot be used, or cannot take more. Nothing was acknowledged because of it."""


class MissingSegment(SpoolError):
    """Spark asks again for a batch that the spool does not have."""


class IngestError(PullstreamError, RuntimeError):
    """An ingestion job cannot begin, or has ended with an error. What it wrote stays written."""
