"""The error of a data directory that cannot be used."""

from pullstream_protocol.errors import PullstreamError


class StorageError(PullstreamError):
    """The data directory cannot be used. The text gives directory and reason in one line."""
