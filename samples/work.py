"""A function for `pullstream worker`, which runs it in many processes.

    cd samples
    pullstream worker work:handle --subscription projects/PROJECT/subscriptions/NAME

Code at module level runs once in each process, when the module is imported. Create connections to
databases, models and similar objects there. Ctrl-C lets running callbacks finish.
"""

from __future__ import annotations

import os
import sys

from pullstream import Message

PROCESS = os.getpid()


def handle(message: Message) -> None:
    """Handle a message; an exception nacks it."""
    # To stderr, because stdout has the worker's statistics. One call of write(), because other
    # processes write there, too.
    sys.stderr.write(f"process {PROCESS} handled {message.data.decode()!r}\n")
    message.ack()
