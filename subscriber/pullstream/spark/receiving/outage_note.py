"""The outage of a subscription's server, and a note about it for processes that watch the job."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pullstream.hooks import Hooks
from pullstream.runtime.lifecycle import StateChange, SubscriptionState
from pullstream_protocol.errors import RpcError

_NAME = "OUTAGE"


class Outage(NamedTuple):
    """A time without a connection to the server, which has not ended.

    Attributes:
        since: Its beginning, in seconds since the epoch.
        error: The error of the first attempt.
    """

    since: float
    error: str

    @classmethod
    def by(cls, error: Exception | None, since: float) -> Outage:
        """Return the outage that began with an error; None: the server ended the stream."""
        if isinstance(error, RpcError) and error.grpc_status_code is not None:
            return cls(since, f"{error.grpc_status_code.name}: {error.message}")
        return cls(since, str(error or "it ends every stream at once"))


class OutageNote(Hooks):
    """Knows the outage while a subscription runs, and keeps the note up to date.

    Attributes:
        present: The present outage; None while the stream works.

    Args:
        folder: Folder of the note. None: there is no note.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.present: Outage | None = None
        if folder is not None:
            delete_note(folder)

    def state_changed(self, subscription: str, change: StateChange) -> None:
        """Write the note when the stream breaks, and delete it when there is another stream."""
        is_broken = change.state is SubscriptionState.RECONNECTING
        self.present = Outage.by(change.cause, change.since) if is_broken else None
        if self._folder is None:
            return
        if self.present is None:
            delete_note(self._folder)
            return
        fresh = self._folder / f"{_NAME}.new"
        # A full disk must not end the stream. The session reports it with the next batch.
        with suppress(OSError):
            fresh.write_text(json.dumps(self.present._asdict()), encoding="utf-8")
            fresh.replace(self._folder / _NAME)


def noted_outage(folder: Path) -> Outage | None:
    """Return the outage of the source that uses this spool; None if its stream works."""
    try:
        noted = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        return Outage(float(noted["since"]), str(noted["error"]))
    except (OSError, ValueError, KeyError, TypeError):
        # There is none, or the machine has crashed while it was written.
        return None


def delete_note(folder: Path) -> None:
    """Delete the note, also one that a killed process has left."""
    with suppress(OSError):
        (folder / _NAME).unlink(missing_ok=True)
