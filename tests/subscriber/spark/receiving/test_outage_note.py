"""The note of an outage in the spool."""

from __future__ import annotations

from pathlib import Path

import grpc

from pullstream.runtime.lifecycle import StateChange, SubscriptionState
from pullstream.spark.receiving.outage_note import Outage, OutageNote, noted_outage
from pullstream_protocol.errors import Unavailable

CONNECTING, STREAMING = SubscriptionState.CONNECTING, SubscriptionState.STREAMING
RECONNECTING, CLOSING = SubscriptionState.RECONNECTING, SubscriptionState.CLOSING


def test_the_note_of_an_outage_is_there_from_the_broken_stream_to_the_next_one(
    tmp_path: Path,
) -> None:
    """It has the beginning and the error. A stream that the server ended has no error."""
    note = OutageNote(tmp_path)
    assert noted_outage(tmp_path) is None
    refused = Unavailable("connection refused")
    assert refused.grpc_status_code is grpc.StatusCode.UNAVAILABLE
    for cause, text in (
        (refused, "UNAVAILABLE: connection refused"),
        (None, "it ends every stream at once"),
    ):
        note.state_changed("s", StateChange(RECONNECTING, CONNECTING, 17.5, cause))
        assert noted_outage(tmp_path) == Outage(17.5, text)
        note.state_changed("s", StateChange(STREAMING, RECONNECTING, 18.0))
        assert noted_outage(tmp_path) is None
    note.state_changed("s", StateChange(RECONNECTING, STREAMING, 19.0, refused))
    note.state_changed("s", StateChange(CLOSING, RECONNECTING, 20.0))
    assert list(tmp_path.iterdir()) == []


def test_a_new_source_deletes_the_note_of_a_killed_one(tmp_path: Path) -> None:
    """Half a note, after a crash of the machine, is none."""
    OutageNote(tmp_path).state_changed("s", StateChange(RECONNECTING, STREAMING, 19.0))
    assert noted_outage(tmp_path) is not None
    OutageNote(tmp_path)
    assert noted_outage(tmp_path) is None
    (tmp_path / "OUTAGE").write_text('{"since": 1')
    assert noted_outage(tmp_path) is None


def test_a_disk_that_cannot_take_the_note_does_not_break_the_stream(tmp_path: Path) -> None:
    """Only the progress display needs it."""
    note = OutageNote(tmp_path)
    (tmp_path / "OUTAGE.new").mkdir()
    note.state_changed("s", StateChange(RECONNECTING, STREAMING, 19.0))
    assert noted_outage(tmp_path) is None
