"""The line by which a driver stops its receivers: a connection that it closes.

Spark kills the worker of a cancelled task seconds after the job has ended. A receiver whose
line is closed before ends at once, and its task with it, so that the job ends with its receivers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

# The output of a receiver that the driver has stopped.
STOPPED = "stopped"

# Seconds for the connection to the driver.
_CONNECT = 5.0


class StopLine:
    """The driver's end. Receivers connect to its address.

    Args:
        host: Address of this machine to listen on.
    """

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._accept, name="pullstream-stop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all receivers, also receivers that connect until `close`."""
        self._is_over = True
        for line in list(self._lines):
            line.close()

    def close(self) -> None:
        """Take no more connections."""
        self.stop()
        # This also ends the thread's wait.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            line.setblocking(False)
            # A receiver that has ended leaves an open file here.
            self._lines = [*filter(_is_in_use, self._lines), line]
            if self._is_over:
                line.close()


def _is_in_use(line: socket.socket) -> bool:
    """Return whether a receiver still waits on a line; close the line otherwise."""
    try:
        has_ended = not line.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        has_ended = True
    if has_ended:
        line.close()
    return not has_ended


def wait_for_stop(host: str, port: int, stopped: Callable[[], None]) -> None:
    """Call a function when the driver closes the line; return at once if there is no way to it.

    Without the line, the receiver ends when Spark kills its worker.
    """
    with suppress(OSError):
        line = socket.create_connection((host, port), timeout=_CONNECT)
        # The driver sends nothing, and may be gone without a word.
        line.settimeout(None)
        with line:
            line.recv(1)
        stopped()
