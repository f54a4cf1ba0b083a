"""Ack IDs: one for each lease, never used twice."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

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


class AckNumbers:
    """The numbers of ack IDs. All subscriptions of an engine share them.

    So an ID is never used twice, even if a subscription is deleted and created again with the same
    name.

    Args:
        first: The first number.
    """

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def take(self, count: int) -> range:
        """Return the next numbers."""
        first, self._next = self._next, self._next + count
        return range(first, self._next)


class AckIds:
    """The form of the ack IDs of one subscription: a number in lower-case hex, and a mark.

    The mark shows whether an ID is a stale one of this subscription (harmless) or belongs to
    another subscription (an error).

    Attributes:
        mark: The part of every ID after the number, derived from the subscription's name.
    """

    def __init__(self, subscription: str) -> None:
        self.mark = "-" + hashlib.blake2s(subscription.encode(), digest_size=6).hexdigest()

    def text(self, number: int) -> str:
        """Return the ID with this number."""
        return f"{number:x}{self.mark}"

    def read(self, ack_ids: Sequence[str]) -> Sequence[int] | None:
        """Return the numbers of IDs; None if some IDs do not have the form that `text` gives them.

        It takes 0.06 us for each ID of a range of numbers, which is the result then, and 0.2 us for
        other IDs; `check` takes 0.6.

        Args:
            ack_ids: At least one ID.
        """
        end, text = -len(self.mark), "".join(ack_ids)
        try:
            first = int(ack_ids[0][:end], 16)
            numbers: Sequence[int] = range(first, first + len(ack_ids))
            if self._texts(numbers) != text:
                numbers = [int(ack_id[:end], 16) for ack_id in ack_ids]
                if self._texts(numbers) != text:
                    return None
        except ValueError:
            return None
        return numbers if 0 <= min(numbers) <= max(numbers) < 16**MAX_NUMBER_LENGTH else None

    def _texts(self, numbers: Sequence[int]) -> str:
        return ("%x" + self.mark) * len(numbers) % tuple(numbers)

    def check(self, ack_id: str) -> None:
        """Raise InvalidArgument if `ack_id` does not have this form."""
        number, _, mark = ack_id.partition("-")
        well_formed = 0 < len(number) <= MAX_NUMBER_LENGTH and set(number) <= _HEX_DIGITS
        if not well_formed or "-" + mark != self.mark:
            raise InvalidArgument(
                f"You have passed an invalid ack ID to the service (ack_id={ack_id})."
            )
