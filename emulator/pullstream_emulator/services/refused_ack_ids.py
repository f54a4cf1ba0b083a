"""The answer to a request that holds valid and refused ack IDs, with exactly-once delivery.

An error names ack IDs in a trailer of limited size. Official clients disagree about the ack IDs
that it does not name: for Java they succeeded, for Go, Python and Node the status decides whether
they are repeated or have failed. Therefore the answer has one of three forms:

1. If every ack ID can be named, the error names all of them: the refused ones with their code, the
   others as transient failures, which every client repeats.
2. If only the refused ones can be named, the other ack IDs take effect, and the status is one that
   clients repeat. Clients that count the others as successful are right, and a repeat is harmless.
3. Otherwise the request has no effect, and the error names no ack ID: all of them have failed.

A repeat must be harmless. Extensions are, and so are acknowledgements, because acknowledged IDs are
remembered. A repeated nack would be refused. So valid IDs are nacked only if the whole request is
valid, and the second form does not exist for nacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pullstream_emulator.engine.delivery.ack_ids import TRANSIENT
from pullstream_protocol.errors import InvalidArgument, ResourceExhausted, RpcError, fits

REASON = "EXACTLY_ONCE_ACKID_FAILURE"

INVALID_ACK_IDS = (
    "Some acknowledgement ids in the request were invalid. This could be because the "
    "acknowledgement ids have expired or the acknowledgement ids were malformed."
)

# An error with more names is certainly too large: a name and its code take more than 40 bytes.
_MOST_NAMED = 200


class Verdict(NamedTuple):
    """What happens with a request.

    Attributes:
        error: The error that answers it.
        takes_effect: Whether the ack IDs that are not refused take effect.
    """

    error: RpcError
    takes_effect: bool


def verdict(ack_ids: Sequence[str], refused: Mapping[str, str], *, is_nack: bool) -> Verdict:
    """Return what happens with a request of which some ack IDs are refused.

    Args:
        ack_ids: All ack IDs of the request.
        refused: The refused ones, with their failure codes.
        is_nack: Whether the request ends leases, so that a repeat would be refused.
    """
    every = {ack_id: refused.get(ack_id, TRANSIENT) for ack_id in ack_ids}
    error: RpcError | None = _named(InvalidArgument, every)
    if error is not None:
        return Verdict(error, takes_effect=not is_nack)
    # Clients of exactly-once subscriptions repeat the ack IDs of a call with this status. After
    # UNAVAILABLE or ABORTED, they would also repeat the whole call, below that logic.
    error = None if is_nack else _named(ResourceExhausted, refused)
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
