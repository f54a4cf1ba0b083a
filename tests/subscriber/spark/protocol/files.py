"""Files of a spool, written by hand."""

from __future__ import annotations

from pullstream.spark.protocol.layout import Manifest, Part, Plan, Segment, numbered, segment_file
from pullstream.spark.receiving.message_group import rows_of
from pullstream.spark.stores import LocalFolder
from tests.subscriber.spark.receiving.messages import batch, group_of


def segment(number: int) -> Segment:
    return Segment("r", number)


def write_segment(spool: LocalFolder, number: int, *published: float) -> None:
    """Write a segment whose messages have these publish times."""
    ids = [f"{number}-{row}" for row in range(len(published))]
    group = group_of(batch(ids, published=published))
    data = segment_file(rows_of([group], None), "nonce")
    spool.create(segment(number).path, data)
    oldest = min(published, default=None)
    manifest = Manifest(segment(number), ids, len(data), oldest=oldest)
    spool.create(segment(number).manifest, manifest.text("nonce"))


def write_plan(spool: LocalFolder, number: int, *segments: int) -> None:
    """Write a plan of segments of one row."""
    parts = [Part(segment(one), 1, []) for one in segments]
    spool.create(numbered("plan", number), Plan(number, 1, "nonce", parts).text())
