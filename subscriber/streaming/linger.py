"""How long outcomes may gather before the server is told of them."""

from __future__ import annotations

# Bounds, in seconds: the longest while messages come one after the other, and while few do, when
# somebody may be waiting for what this one leads to.
LONGEST_LINGER = 0.1
LONGEST_QUIET_LINGER = 0.02
SHORTEST_LINGER = 20e-6

# So many outcomes in one round are a steady flow.
STEADY = 8

# No more than this part of flow control's window should gather: the rest keeps the server sending.
GATHERED_PART = 0.25


class Linger:
    """A time that grows while few outcomes come in it, and shrinks while many do.

    Every round costs a wake-up and a call, so with little to do a round should be long; but each
    finished message may be what the server waits for to send the next. A hundred busy subscriptions
    in one process would, at the quiet bound, do little else than such rounds.
    """

    def __init__(self, max_messages: int) -> None:
        self._enough = max_messages * GATHERED_PART
        self.seconds = SHORTEST_LINGER

    def learn(self, gathered: int) -> None:
        """So many came together in the present time."""
        if gathered > self._enough:
            self.seconds = max(self.seconds / 2, SHORTEST_LINGER)
        elif gathered < self._enough / 2:
            longest = LONGEST_LINGER if gathered >= STEADY else LONGEST_QUIET_LINGER
            self.seconds = min(self.seconds * 1.5, longest)
