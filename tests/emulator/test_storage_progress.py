"""Progress against a set of numbers: it never mistakes one for another, and stays small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emulator.storage.progress import CHUNK, Progress, masks_of

# Few enough numbers that whole chunks are finished, over enough chunks that their order matters.
SPANS = st.tuples(st.integers(1, 4 * CHUNK), st.integers(1, 2 * CHUNK))
STEPS = st.lists(st.tuples(st.booleans(), SPANS))


def finished(progress: Progress, up_to: int) -> set[int]:
    """All finished numbers from 1 on."""
    return {seq for seq in range(1, up_to + 1) if progress.bits(seq // CHUNK) >> seq % CHUNK & 1}


@given(since=st.integers(0, 3 * CHUNK), steps=STEPS)
def test_it_knows_what_is_finished(since: int, steps: list[tuple[bool, tuple[int, int]]]) -> None:
    """Whatever was finished and reopened, in any order."""
    progress = Progress.after(since)
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
def test_it_tells_every_chunk_that_it_changed(
    since: int, steps: list[tuple[bool, tuple[int, int]]]
) -> None:
    """Who writes down `base` and those chunks only, after each step, has all of it."""
    progress = Progress.after(since)
    stored = Progress(progress.base, dict(progress.chunks))
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
def test_what_is_finished_takes_no_room(data: st.DataObject) -> None:
    """However many numbers there were, and in whatever order they were finished."""
    order = data.draw(st.permutations(range(20)))
    progress = Progress.after(0)
    for part in order:
        # Parts that do not meet the borders of chunks.
        first = 1 + part * 500
        progress.finish(masks_of(range(first, first + 500)))
    assert progress.base == 10_001 // CHUNK
    assert progress.chunks.keys() == {progress.base}
