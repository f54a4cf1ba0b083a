"""Ack IDs: one for each lease, never used twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from pullstream_protocol.errors import InvalidArgument

# Codes of google.pubsub.v1 for an ack ID in an error of an exactly-once subscription.
INVALID = "PERMANENT_FAILURE_INVALID_ACK_ID"
UNORDERED = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
# The client must repeat the request for this ack ID.
TRANSIENT = "TRANSIENT_FAILURE_INVALID_ACK_ID"

# Most hexadecimal digits of the number in an ack ID.
MAX_NUMBER_LENGTH = 16

_HEX_DIGITS = frozenset("0123456789abcdef")


def number_of(ack_id: str) -> int:
    """Return the number in an ack ID.

    Raises:
        ValueError: The ID has another form. `AckIds.check` refuses it too.
    """
    return int(ack_id.partition("-")[0], 16)


class AckIds:
    """The form of the ack IDs of one subscription: a number in lower-case hex, and a mark.

    The mark shows whether an ID is a stale one of this subscription (harmless) or belongs to
    another subscription (an error).

    Attributes:
        numbers: The next numbers. All subscriptions of an engine share this iterator, so an ID is
            never used twice, even if a subscription is deleted and created again with the same
            name.
        mark: The part of every ID after the number, derived from the subscription's name.
    """

    def __init__(self, subscription: str, numbers: Iterator[int]) -> None:
        self.numbers = numbers
        self.mark = "-" + hashlib.blake2s(subscription.encode(), digest_size=6).hexdigest()

    def check(self, ack_id: str) -> None:
        """Raise InvalidArgument if `ack_id` does not have this form."""
        number, _, mark = ack_id.partition("-")
        well_formed = 0 < len(number) <= MAX_NUMBER_LENGTH and set(number) <= _HEX_DIGITS
        if not well_formed or "-" + mark != self.mark:
            raise InvalidArgument(
                f"You have passed an invalid ack ID to the service (ack_id={ack_id})."
            )
