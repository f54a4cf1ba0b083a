"""The cases of fetching and acknowledging by synchronous pulls, compared with other brokers."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass

from .peers import OURS
from .rows import Case, Row

NATS, REDIS = "nats-py", "redis-py"

# The needs of other peers: the program of the server, and the module of the client.
_NEEDED = {NATS: ("nats-server", "nats"), REDIS: ("redis-server", "redis")}


@dataclass(frozen=True)
class FetchWork:
    """One client against its own broker, in memory: the messages in total, and per fetch."""

    peer: str
    batch: int
    messages: int


def missing(work: FetchWork) -> str | None:
    """Return the reason why that peer cannot be measured here, or None."""
    if work.peer not in _NEEDED:
        return None
    program, module = _NEEDED[work.peer]
    if shutil.which(program) is None:
        return f"{program} is not installed"
    return None if importlib.util.find_spec(module) else f"{work.peer} is not installed"


FETCH_CASES = (
    Case(
        "fetch and acknowledge",
        "fetching",
        {
            OURS: FetchWork(OURS, 1000, 300_000),
            f"{NATS} fetch(1,000) + ack": FetchWork(NATS, 1000, 30_000),
            f"{REDIS} XREADGROUP + XACK(100)": FetchWork(REDIS, 100, 60_000),
        },
        (
            Row("rate", against=f"{NATS} fetch(1,000) + ack", at_least=5),
            Row("rate", against=f"{REDIS} XREADGROUP + XACK(100)", at_least=2),
        ),
    ),
)
