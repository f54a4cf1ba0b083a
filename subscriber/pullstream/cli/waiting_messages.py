"""Number of unacknowledged messages of a subscription, asked from pullstream's broker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pullstream.rpc.endpoint import EMULATOR_VARIABLE, is_google
from pullstream_protocol import names

from .broker_admin import BrokerAdmin
from .context import CliContext

# Seconds from one question to the next: of a broker, and of a server that has not answered.
_EVERY = 5.0
_LATER = 60.0


class WaitingMessages:
    """Asks again and again. A separate thread asks, because an answer may take long.

    Args:
        ask: Returns the number; None: the server has no answer.

    Attributes:
        count: The last answer.
    """

    def __init__(self, ask: Callable[[], int | None]) -> None:
        self._ask = ask
        self._end = threading.Event()
        self.count: int | None = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask during the block. A question that has no answer at its end is not waited for."""
        thread = threading.Thread(target=self._run, name="pullstream-backlog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()

    def _run(self) -> None:
        while not self._end.is_set():
            self.count = self._ask()
            self._end.wait(_LATER if self.count is None else _EVERY)


def unacknowledged(session: CliContext, subscription: str) -> int | None:
    """Return the number of unacknowledged messages; None: the server cannot be asked.

    Args:
        session: The settings of the run.
        subscription: Full name.
    """
    address = session.endpoint or os.environ.get(EMULATOR_VARIABLE)
    if address is None or is_google(address):
        return None
    status = BrokerAdmin.status_of(session, names.project_of(subscription))
    found = (
        each for each in (status or {}).get("subscriptions", ()) if each["name"] == subscription
    )
    return next((int(each["backlog"]) for each in found), None)
