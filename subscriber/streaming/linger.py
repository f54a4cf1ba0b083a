"""How long outcomes may gather before the server is told of them."""

from __future__ import annotations

# Bounds, in seconds.
LONGEST_LINGER = 0.02
SHORTEST_LINGER = 20e-6

# No more than this part of flow control's window should gather: the rest keeps the server sending.
GATHERED_PART = 0.25


class Linger:
    """A time that grows while few outcomes come in it, and shrinks while many do.

    Every round costs a wake-up and a call, so with little to do a round should be long; but each
    finished message may be what the server waits for to send the next.
    """

    def __init__(self, max_messages: int) -> None:
        self._enough = max_messages * GATHERED_PART
        self.seconds = SHORTEST_LINGER

    def learn(self, gathered: int) -> None:
        """So many came together in the present time."""
        if gathered > self._enough:
            self.seconds = max(self.seconds / 2, SHORTEST_LINGER)
        elif gathered < self._enough / 2:
            self.seconds = min(self.seconds * 1.5, LONGEST_LINGER)
