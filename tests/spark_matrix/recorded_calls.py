"""The order of Spark's calls to a streaming source, as calls.py has recorded it for each version.

Before 4.2, `latestOffset` has no argument. At a restart, Spark calls `partitions` with the newest
planned offset as both its arguments, then repeats a batch that was planned and not committed. So
the end of the last `partitions` before a `latestOffset` is committed. `stop` is called for a
process that ends by itself; a query that is stopped ends by a signal.
"""

from __future__ import annotations

BEFORE_4_2 = [
    "latestOffset, initialOffset, partitions 0 1, latestOffset, commit 1, partitions 1 2, "
    "latestOffset, commit 2, partitions 2 3, latestOffset",
    "partitions 3 3, latestOffset, commit 3, partitions 3 4",
    "partitions 4 4, partitions 3 4, latestOffset, commit 4, partitions 4 5, latestOffset",
    # Only one batch, although there are two.
    "partitions 5 5, latestOffset, commit 5, partitions 5 6",
]
FROM_4_2 = [
    "getDefaultReadLimit, initialOffset, latestOffset 0, initialOffset, partitions 0 1, "
    "latestOffset 1, commit 1, partitions 1 2, latestOffset 2, commit 2, partitions 2 3, "
    "latestOffset 3",
    "getDefaultReadLimit, latestOffset 3, commit 3, partitions 3 4",
    "getDefaultReadLimit, partitions 3 4, latestOffset 4, commit 4, partitions 4 5, latestOffset 5",
    "prepareForTriggerAvailableNow, getDefaultReadLimit, latestOffset 5, commit 5, partitions 5 6, "
    "latestOffset 6, commit 6, partitions 6 7, latestOffset 7",
]
CALLS = {"4.0.5": BEFORE_4_2, "4.1.4": BEFORE_4_2, "4.2.1": FROM_4_2, "4.3.0": FROM_4_2}


def recorded(version: str) -> list[list[str]]:
    """Return the calls of each run of calls.py with a version."""
    return [run.split(", ") for run in CALLS[version]]
