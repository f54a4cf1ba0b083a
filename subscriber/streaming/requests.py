"""One request to the server about messages: what it is for, and how long it is tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .backoff import Backoff

# How long a request that fails for passing reasons is tried again, in seconds. A deadline change is
# worth nothing after the lease it was to extend, so it is tried for as long as it asks for; a nack
# until the lease may be thought to have ended by itself.
ACK_RETRY_FOR = 600.0
NACK_RETRY_FOR = 60.0

# Stands for "acknowledge" where otherwise the seconds of a deadline change stand.
ACK = -1


def new_backoff() -> Backoff:
    """The pauses before a request is made again."""
    return Backoff(0.1, 30.0)


class Purpose(Enum):
    """What a request is for: how its answer is read, and how long it is tried."""

    # To acknowledge, or to extend a lease as the user wants it.
    ASKED = "asked"
    # To extend a lease that is about to end.
    LEASE = "lease"
    # To let a lease end, at once or some seconds from now.
    NACK = "nack"
    # To ask the server whether freshly delivered messages are still ours.
    RECEIPT = "receipt"
    # To keep the lease of what is acknowledged without an answer. Nobody waits for its own.
    KEEP = "keep"


@dataclass
class Request:
    """One Acknowledge (`seconds` is ACK) or ModifyAckDeadline call.

    number: in the order in which requests were made.
    out_of_turn: whether it holds what was refused before as too early (OutOfTurn).
    sent_at: when it was last handed out, on the outbox's clock.
    """

    seconds: int
    ack_ids: list[str]
    give_up_at: float
    purpose: Purpose = Purpose.ASKED
    number: int = 0
    out_of_turn: bool = False
    sent_at: float = 0.0
    backoff: Backoff = field(default_factory=new_backoff)

    @property
    def is_ack(self) -> bool:
        return self.seconds == ACK

    @property
    def is_receipt(self) -> bool:
        return self.purpose is Purpose.RECEIPT


def retry_for(seconds: int, purpose: Purpose) -> float:
    """Seconds from the first attempt to the last."""
    if seconds == ACK:
        return ACK_RETRY_FOR
    return NACK_RETRY_FOR if purpose is Purpose.NACK or not seconds else float(seconds)
