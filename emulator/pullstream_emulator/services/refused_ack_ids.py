"""The answer to a request that holds valid and refused ack IDs, with exactly-once delivery.

An error names ack IDs in a trailer of limited size. Official clients disagree about the ack IDs
that it does not name: for Java they succeeded, for Go, Python and Node the status decides whether
they are repeated or have failed. Therefore the answer has one of four forms:

1. If every ack ID can be named, the error names all of them: the refused ones with their code, the
   others as transient failures, which every client repeats.
2. If only the refused ones can be named, the other ack IDs take effect, and the status is one that
   clients repeat. Clients that count the others as successful are right, and a repeat is harmless.
3. Extensions take effect even then, and the error names as many refused ack IDs as fit, with that
   status. The answer to each repeat names further ones. Java's client takes the others for
   extended. It learns the truth from the answer to their acknowledgement.
4. Otherwise the request has no effect, and the error names no ack ID: all of them have failed.

A repeat must be harmless. Extensions are, and so are acknowledgements, because acknowledged IDs are
remembered. A repeated nack would be refused. So valid IDs are nacked only if the whole request is
valid, and the second form does not exist for nacks.

A client confirms the receipt of a response by one extension. If the fourth form answered it, the
Go client would drop messages whose leases it holds, and no other consumer would get them before
these leases end. Smaller responses would also avoid this, but Python's client waits for up to a
second at each response of which it has to repeat an ID: with 80 messages in a response it handled
848 of 3,000 in a minute, with 1,000 it handles all in 40 seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from pullstream_emulator.engine.delivery.ack_ids import TRANSIENT
from pullstream_protocol.errors import InvalidArgument, ResourceExhausted, RpcError, fits

REASON = "EXACTLY_ONCE_ACKID_FAILURE"

INVALID_ACK_IDS = (
    "Some acknowledgement ids in the request were invalid. This could be because the "
    "acknowledgement ids have expired or the acknowledgement ids were malformed."
)

# An error with more names is certainly too large: a name and its code take more than 40 bytes.
_MOST_NAMED = 200

# This number of ack IDs always fits. Up to 94 of a new broker fit, and fewer after thousands of
# restarts, because ack IDs grow.
ALWAYS_NAMED = 80

Request = Literal["acknowledge", "extend", "nack"]


class Verdict(NamedTuple):
    """What happens with a request.

    Attributes:
        error: The error that answers it.
        takes_effect: Whether the ack IDs that are not refused take effect.
    """

    error: RpcError
    takes_effect: bool


def verdict(ack_ids: Sequence[str], refused: Mapping[str, str], request: Request) -> Verdict:
    """Return what happens with a request of which some ack IDs are refused.

    Args:
        ack_ids: All ack IDs of the request.
        refused: The refused ones, with their failure codes.
        request: The kind of the request.
    """
    every = {ack_id: refused.get(ack_id, TRANSIENT) for ack_id in ack_ids}
    error: RpcError | None = _named(InvalidArgument, every)
    if error is not None:
        return Verdict(error, takes_effect=request != "nack")
    # Clients of exactly-once subscriptions repeat the ack IDs of a call with this status. After
    # UNAVAILABLE or ABORTED, they would also repeat the whole call, below that logic.
    error = None if request == "nack" else _named(ResourceExhausted, refused)
    if error is None and request == "extend":
        some = dict(itertools.islice(refused.items(), ALWAYS_NAMED))
        error = ResourceExhausted(INVALID_ACK_IDS, reason=REASON, metadata=some)
    if error is not None:
        return Verdict(error, takes_effect=True)
    return Verdict(
        InvalidArgument(
            f"{len(refused)} of the {len(every)} acknowledgement ids in the request were invalid. "
            "An error cannot list all of them, so the request had no effect."
        ),
        takes_effect=False,
    )


def _named(kind: type[RpcError], codes: Mapping[str, str]) -> RpcError | None:
    """Return an error that names these ack IDs, or None if they do not fit into a response."""
    if len(codes) > _MOST_NAMED:
        return None
    error = kind(INVALID_ACK_IDS, reason=REASON, metadata=codes)
    return error if fits(error) else None
