"""Ack ids: one for each lease, and never the same twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from protocol.errors import InvalidArgument

# Codes of google.pubsub.v1 for an ack id that an exactly-once subscription refuses.
INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"

# Hexadecimal digits of the number in an ack id.
MAX_NUMBER_LENGTH = 16

_HEX_DIGITS = frozenset("0123456789abcdef")


class AckIds:
    """The form of the ack ids of one subscription: a number in lower-case hex, and a mark.

    By the mark it tells its own stale ids (harmless) from another subscription's (an error).
    `numbers` is shared by all subscriptions of an engine: an id is never given twice, even to one
    that was deleted and made again under the same name.
    """

    def __init__(self, subscription: str, numbers: Iterator[int]) -> None:
        self.numbers = numbers
        self.mark = "-" + hashlib.blake2s(subscription.encode(), digest_size=6).hexdigest()

    def check(self, ack_id: str) -> None:
        """Raise InvalidArgument for what does not have this form."""
        number, _, mark = ack_id.partition("-")
        well_formed = 0 < len(number) <= MAX_NUMBER_LENGTH and set(number) <= _HEX_DIGITS
        if not well_formed or "-" + mark != self.mark:
            raise InvalidArgument(
                f"You have passed an invalid ack ID to the service (ack_id={ack_id})."
            )
