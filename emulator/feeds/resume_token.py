"""The text that stands for a reader's positions in all topics of a watch.

It is base64url of a JSON object: of each topic the number that the reader has, and the epoch that
the number belongs to. Clients are not to look into it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from emulator.refusals import invalid_argument

# Longer than that of 256 topics with the longest names.
MAX_BYTES = 256 * 1024


class Place(NamedTuple):
    """A position in one life of a topic."""

    seq: int
    epoch: int


def entry(topic: str, seq: int, epoch: int) -> str:
    """One topic's part of a token. Kept until its number changes, it saves most of the work."""
    return f"{json.dumps(topic)}:[{seq},{epoch}]"


def encode(entries: Iterable[str]) -> str:
    text = "{" + ",".join(entries) + "}"
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def decode(token: str) -> Mapping[str, Place]:
    """The positions that a token stands for; none for an empty one.

    Raises:
        InvalidArgument: no frame has brought this.
    """
    if not token:
        return {}
    if len(token) > MAX_BYTES:
        raise invalid_argument("resume_token")
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        positions = json.loads(text)
    except (ValueError, binascii.Error, RecursionError):
        raise invalid_argument("resume_token") from None
    if not isinstance(positions, dict):
        raise invalid_argument("resume_token")
    return {topic: _place(value) for topic, value in positions.items()}


def _place(value: object) -> Place:
    if isinstance(value, list) and len(value) == 2:
        seq, epoch = value
        if type(seq) is int and type(epoch) is int and seq >= 0 and epoch >= 0:
            return Place(seq, epoch)
    raise invalid_argument("resume_token")
