"""A port for a program that cannot choose one itself, or that must not run."""

from __future__ import annotations

import random
import socket

# Below the ports that the system gives to connections, and to listeners without a port of their
# own. Another process could get such a port before the program binds it.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a port on which nothing listens."""
    dice = random.SystemRandom()
    while True:
        port = dice.choice(_PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
