"""The text that stands for a reader's positions in all topics of a watch.

It is base64url of a JSON object: of each topic the number that the reader has, and the epoch that
the number belongs to. Clients are not to look into it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping

from emulator.refusals import invalid_argument

from .place import Place

# Longer than that of 256 topics with the longest names.
MAX_BYTES = 256 * 1024

# What fits into the messages that positions come in and go out with.
_MAX_SEQ = 2**63 - 1
_MAX_EPOCH = 2**64 - 1


def _encoded(text: str) -> str:
    """A part of the JSON text. With spaces to fill it up parts can be encoded one by one."""
    return base64.urlsafe_b64encode((text + " " * (-len(text) % 3)).encode()).decode()


_OPEN, _COMMA, _CLOSE = _encoded("{"), _encoded(","), _encoded("}")


def entry(topic: str, seq: int, epoch: int) -> str:
    """One topic's part of a token. Who keeps it until its number changes has a token, which each
    frame needs, for next to nothing."""
    return _encoded(f"{json.dumps(topic)}:[{seq},{epoch}]")


def encode(entries: Iterable[str]) -> str:
    return f"{_OPEN}{_COMMA.join(entries)}{_CLOSE}"


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
        are_whole = type(seq) is int and type(epoch) is int
        if are_whole and 0 <= seq <= _MAX_SEQ and 0 <= epoch <= _MAX_EPOCH:
            return Place(seq, epoch)
    raise invalid_argument("resume_token")
