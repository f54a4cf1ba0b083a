"""States of a follower, and the allowed transitions."""

from __future__ import annotations

from enum import Enum


class FollowState(Enum):
    """State of a follower.

    Attributes:
        PULL: Reads the records that were appended while it was away.
        SUBSCRIBE: Has requested a stream, and waits for it to open.
        LAST_PULL: Reads up to the number from which the stream delivers.
        DRAIN: Handles the records that the stream has delivered in the meantime.
        LIVE: Handles records as the stream delivers them.
        POLL: The stream failed too often; uses long polls for a while.
        CLOSED: Has ended, or is ending.
    """

    PULL = "pull"
    SUBSCRIBE = "subscribe"
    LAST_PULL = "last pull"
    DRAIN = "drain"
    LIVE = "live"
    POLL = "poll"
    CLOSED = "closed"


# From each state with a stream, the follower may return to reads: because the stream was lost, is
# silent, or is faster than the handler.
_FALLS = frozenset({FollowState.PULL, FollowState.POLL})

NEXT: dict[FollowState, frozenset[FollowState]] = {
    FollowState.PULL: frozenset({FollowState.SUBSCRIBE}),
    FollowState.SUBSCRIBE: frozenset({FollowState.LAST_PULL}) | _FALLS,
    FollowState.LAST_PULL: frozenset({FollowState.DRAIN}) | _FALLS,
    FollowState.DRAIN: frozenset({FollowState.LIVE}) | _FALLS,
    FollowState.LIVE: _FALLS,
    FollowState.POLL: frozenset({FollowState.PULL}),
    FollowState.CLOSED: frozenset(),
}


def may_follow(state: FollowState, to: FollowState) -> bool:
    """Return whether `to` may come after `state`. CLOSED may come after every other state."""
    return to in NEXT[state] or (to is FollowState.CLOSED and state is not FollowState.CLOSED)
