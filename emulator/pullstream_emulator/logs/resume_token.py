"""Resume token: text that encodes a reader's positions in all topics of a watch.

The token is the base64url form of a JSON object. It contains the position and the epoch of each
topic. Clients must not interpret it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping

from pullstream_emulator.error_texts import invalid_argument

from .reader_position import ReaderPosition

# More than a token for 256 topics with the longest names needs.
MAX_BYTES = 256 * 1024

# Limits of the protobuf fields for positions.
_MAX_SEQ = 2**63 - 1
_MAX_EPOCH = 2**64 - 1


def _encoded(text: str) -> str:
    """Encode a part of the JSON text, padded with spaces so that parts can be joined."""
    return base64.urlsafe_b64encode((text + " " * (-len(text) % 3)).encode()).decode()


_OPEN, _COMMA, _CLOSE = _encoded("{"), _encoded(","), _encoded("}")


def entry(topic: str, seq: int, epoch: int) -> str:
    """Return one topic's part of a token.

    Every frame needs a token. Callers keep each part until its number changes, so that a new token
    costs almost nothing.
    """
    return _encoded(f"{json.dumps(topic)}:[{seq},{epoch}]")


def encode(entries: Iterable[str]) -> str:
    """Return a token from the results of `entry`, without encoding them again."""
    return f"{_OPEN}{_COMMA.join(entries)}{_CLOSE}"


def decode(token: str) -> Mapping[str, ReaderPosition]:
    """Return the positions in a token; none for an empty token.

    Raises:
        InvalidArgument: The token is malformed.
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
    return {topic: _position(value) for topic, value in positions.items()}


def _position(value: object) -> ReaderPosition:
    if isinstance(value, list) and len(value) == 2:
        seq, epoch = value
        are_whole = type(seq) is int and type(epoch) is int
        if are_whole and 0 <= seq <= _MAX_SEQ and 0 <= epoch <= _MAX_EPOCH:
            return ReaderPosition(seq, epoch)
    raise invalid_argument("resume_token")
