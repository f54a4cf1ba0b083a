"""AckBitmap, compared with a set of numbers, and its size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.storage.ack_bitmap import CHUNK, AckBitmap, masks_of

# Spans large enough to finish whole chunks, over enough chunks that their order matters.
SPANS = st.tuples(st.integers(1, 4 * CHUNK), st.integers(1, 2 * CHUNK))
STEPS = st.lists(st.tuples(st.booleans(), SPANS))


def finished(progress: AckBitmap, up_to: int) -> set[int]:
    """Return all finished numbers from 1."""
    return {seq for seq in range(1, up_to + 1) if progress.bits(seq // CHUNK) >> seq % CHUNK & 1}


@given(since=st.integers(0, 3 * CHUNK), steps=STEPS)
def test_an_ack_bitmap_contains_the_same_finished_sequence_numbers_as_a_plain_set(
    since: int, steps: list[tuple[bool, tuple[int, int]]]
) -> None:
    """The test uses any order of finishing and reopening."""
    progress = AckBitmap.after(since)
    expected = set(range(1, since + 1))
    for is_finish, (first, count) in steps:
        seqs = range(first, first + count)
        if is_finish:
            progress.finish(masks_of(seqs))
            expected.update(seqs)
        else:
            progress.reopen(masks_of(seqs))
            expected.difference_update(seqs)
    assert finished(progress, 7 * CHUNK) == expected


@given(since=st.integers(0, 3 * CHUNK), steps=STEPS)
def test_an_ack_bitmap_reports_every_chunk_that_finishing_or_reopening_numbers_changed(
    since: int, steps: list[tuple[bool, tuple[int, int]]]
) -> None:
    """A complete copy needs only `base` and the reported chunks after each step."""
    progress = AckBitmap.after(since)
    stored = AckBitmap(progress.base, dict(progress.chunks))
    for is_finish, (first, count) in steps:
        masks = masks_of(range(first, first + count))
        changed = progress.finish(masks) if is_finish else progress.reopen(masks)
        stored.base = progress.base
        for chunk in changed:
            if chunk in progress.chunks:
                stored.chunks[chunk] = progress.chunks[chunk]
            else:
                stored.chunks.pop(chunk, None)
    assert (stored.base, stored.chunks) == (progress.base, progress.chunks)


@given(data=st.data())
def test_chunks_of_an_ack_bitmap_whose_numbers_are_all_finished_take_no_memory(
    data: st.DataObject,
) -> None:
    """The numbers are finished in any order."""
    order = data.draw(st.permutations(range(20)))
    progress = AckBitmap.after(0)
    for part in order:
        # Parts that do not end at the limits of chunks.
        first = 1 + part * 500
        progress.finish(masks_of(range(first, first + 500)))
    assert progress.base == 10_001 // CHUNK
    assert progress.chunks.keys() == {progress.base}
