"""A function for `pullstream worker`, which runs it in many processes.

    cd samples
    pullstream worker work:handle --subscription projects/PROJECT/subscriptions/NAME

What a module does when it is imported is done once in each process: here belong connections to
databases, models, and the like. Ctrl-C lets running callbacks finish.
"""

from __future__ import annotations

import os
import sys

from subscriber import Message

PROCESS = os.getpid()


def handle(message: Message) -> None:
    """An exception gives the message back."""
    # To stderr, as stdout has the worker's statistics; in one piece, as others write there, too.
    sys.stderr.write(f"process {PROCESS} handled {message.data.decode()!r}\n")
    message.ack()
