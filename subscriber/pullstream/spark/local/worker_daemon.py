"""pyspark's daemon, which forks the workers, without a trace for each task that Spark has stopped.

Spark closes the connection of a task that it stops. The worker then cannot send the rest of its
output, and pyspark prints a traceback for that. All other errors are printed.

This file runs as a separate module: the workers must not import pullstream before they are forked.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from pyspark import daemon


class Traces:
    """The functions of the module `traceback` that the daemon uses."""

    format_exc: Callable[..., str] = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print the current error, unless its cause is a closed connection."""
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
            traceback.print_exc()


if __name__ == "__main__":
    vars(daemon)["traceback"] = Traces
    try:
        daemon.manager()
    except (BrokenPipeError, ConnectionResetError):
        # Java has ended.
        sys.exit(1)
