"""The states of a follower, and which may follow which."""

from __future__ import annotations

from enum import Enum


class FollowState(Enum):
    """Where a follower is between the log's past and its end.

    PULL: reads what was appended while it was away. SUBSCRIBE: has asked for a stream. LAST_PULL:
    reads up to where the stream began. DRAIN: handles what the stream has brought meanwhile. LIVE:
    handles what it brings. POLL: the stream failed too often; waits with long polls for a while.
    CLOSED: it is over, or about to be.
    """

    PULL = "pull"
    SUBSCRIBE = "subscribe"
    LAST_PULL = "last pull"
    DRAIN = "drain"
    LIVE = "live"
    POLL = "poll"
    CLOSED = "closed"


# From any state with a stream back to pulling: it was lost, is silent, or was faster than we are.
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
    """Whether `to` may come after `state`. From anywhere it may end."""
    return to in NEXT[state] or (to is FollowState.CLOSED and state is not FollowState.CLOSED)
