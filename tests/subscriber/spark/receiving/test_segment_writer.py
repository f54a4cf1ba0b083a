"""The segments that a writer makes of its buffer, and their manifests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pullstream.spark.receiving.segment_writer import SegmentWriter
from pullstream.spark.settings import IngestSettings
from pullstream.spark.stores import LocalFolder
from tests.subscriber.spark.receiving.messages import batch, columns
from tests.subscriber.spark.stage import SUBSCRIPTION


@pytest.mark.parametrize(
    ("published", "oldest"),
    [((20.0, 10.5), 10.5), ((20.0,), 20.0), ((), None)],
)
def test_a_manifest_has_the_earliest_publish_time_of_its_messages_if_they_have_one(
    tmp_path: Path, published: Sequence[float], oldest: float | None
) -> None:
    """The manifest is JSON, which has no infinite numbers."""
    settings = IngestSettings(subscription=SUBSCRIPTION, spool_dir=str(tmp_path))
    writer = SegmentWriter(settings, LocalFolder(tmp_path))
    writer.start()
    for one, time in zip(["a", "b"], [*published, None, None], strict=False):
        writer.buffer(columns(batch([one], published=[] if time is None else [time])))
    written = writer.write(10, 1000)
    assert written is not None
    assert written.manifest is not None
    assert written.manifest.oldest == oldest
    found = json.loads(
        (tmp_path / written.manifest.segment.manifest).read_text(), parse_constant=pytest.fail
    )
    assert (found["oldest"], found["attempts"], found["rows"]) == (oldest, 1, 2)
    writer.buffer.close()
