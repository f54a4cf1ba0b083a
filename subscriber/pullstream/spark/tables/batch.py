"""The name of a batch, which the same rows have in each replay, and no other rows ever have."""

from __future__ import annotations

from typing import NamedTuple


class BatchName(NamedTuple):
    """The id of the source's folder, and the source's own offset at the end of the batch.

    Attributes:
        source: Id of the folder, a UUID in hexadecimal digits.
        number: The offset. Later batches have larger ones.
    """

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}-{self.number:012}"
