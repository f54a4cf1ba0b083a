"""Receivers and queries that start often leave few files in a spool on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullstream.spark.protocol.acknowledge import Acknowledge
from tests.soak.receiver_starts import Starts, without_syncs


@pytest.mark.parametrize("acknowledge", Acknowledge)
def test_a_hundred_starts_of_receivers_leave_a_constant_number_of_files(
    tmp_path: Path, acknowledge: Acknowledge
) -> None:
    """Folders of receivers, halves of files, segments, marks, plans and known ids are deleted.

    The soak, with a thousand starts, is `python -m tests.soak.receiver_starts`.
    """
    starts = Starts(tmp_path, 7, acknowledge)
    with without_syncs():
        starts.run(100, apart=150.0)
    assert starts.is_constant(), starts.counts
    assert len(starts.committed) > 300
