"""Rows of the database hold all messages of many publishes, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.engine.record import Record, RecordRun
from pullstream_emulator.storage import batch
from pullstream_emulator.storage.ack_bitmap import CHUNK

# The number of skipped sequence numbers and of messages, and whether they are a run.
publishes = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 5]), st.integers(1, 700), st.booleans()), max_size=6
)


@given(publishes, st.sampled_from([50, 5_000, 1_000_000]))
def test_rows_have_every_message_once_and_within_their_limits(
    each: list[tuple[int, int, bool]], most_bytes: int
) -> None:
    published: list[Sequence[Record]] = []
    expected: list[tuple[int, bytes]] = []
    seq = 1
    for skipped, count, is_run in each:
        seq += skipped
        run = RecordRun(seq, 0, [b"\n\x01x"] * count)
        published.append(run if is_run else list(run))
        expected += zip(range(seq, seq + count), run.encoded(), strict=True)
        seq += count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "MAX_BYTES", most_bytes)
        rows = [
            (first, [record.encoded for record in messages], batch.encode(messages))
            for first, messages in batch.rows(published)
        ]
    assert [pair for first, encoded, _ in rows for pair in enumerate(encoded, first)] == expected
    for first, encoded, row in rows:
        assert first // CHUNK == (first + len(encoded) - 1) // CHUNK
        assert len(encoded) == 1 or sum(map(len, encoded)) <= most_bytes
        decoded = batch.decode(first, len(encoded), row)
        assert list(decoded) == list(enumerate(encoded, first))


def test_consecutive_publishes_share_a_row() -> None:
    """Many small publishes need few writes."""
    runs = [RecordRun(first, 0, [b"\n\x01x"] * 4) for first in range(1, 1001, 4)]
    assert [(first, len(encoded)) for first, encoded in batch.rows(runs)] == [(1, 1000)]
