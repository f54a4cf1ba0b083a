"""The decision to go on without a segment that cannot be read, in its plan or in all plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pullstream.spark.errors import DamagedFile, MissingSegment, SpoolError

from .acknowledge import Acknowledge
from .layout import (
    MARKS,
    OWNERS,
    PLANS,
    Manifest,
    Part,
    Plan,
    Segment,
    manifest_of_rows,
    numbered,
    numbers_of,
    read_segment,
    skip_path,
    text,
)
from .storage import Get, List, Steps, put


class Skipped(NamedTuple):
    """A segment that was left out.

    Attributes:
        problem: Why it cannot be read.
        rows: Number of the messages that the batch does not have. None: neither plan nor manifest
            says it.
        ids: Their ids. None: the manifest, which has them, cannot be read either.
        acknowledge: When its receiver acknowledges. With STORED, the messages are lost. Otherwise
            they come again. None: the manifest cannot be read.
    """

    problem: str
    rows: int | None
    ids: Sequence[str] | None
    acknowledge: Acknowledge | None


def skip(plan_number: int, segment: Segment, nonce: str) -> Steps[Skipped]:
    """Record that a segment is left out of a plan. A query reads the decision when it starts.

    Args:
        plan_number: Number of the plan. 0: the segment is in no plan, and will be in none.
        segment: The segment.
        nonce: Nonce of the writer.

    Raises:
        SpoolError: There is no such plan or segment, the plan is committed, or the segment can be
            read. For plan 0: or the manifest can be read.
    """
    founder = (yield Get([numbered(OWNERS, 0)]))[0]
    if founder is None:
        raise SpoolError(f"the folder is no spool: {numbered(OWNERS, 0)} does not exist")
    if not plan_number:
        return (yield from _skip_unplanned(segment, nonce))
    path = numbered(PLANS, plan_number)
    content = (yield Get([path]))[0]
    if content is None:
        plans = sorted(numbers_of((yield List(PLANS))))
        raise SpoolError(f"{path} does not exist; there are plans {plans or 'none'}")
    plan = Plan.read(plan_number, content)
    part = _part_of(plan, segment)
    if max(numbers_of((yield List(MARKS))), default=0) >= plan_number:
        raise SpoolError(
            f"plan {plan_number} is committed, so its segments are not needed any more"
        )
    data, manifest_text = yield Get([segment.path, segment.manifest])
    try:
        read_segment(plan_number, part, data)
    except MissingSegment as error:
        problem = str(error)
    else:
        raise SpoolError(f"{segment.path} can be read; it must not be left out")
    yield from put(skip_path(plan_number, segment), text(nonce, problem=problem))
    try:
        manifest = Manifest.read(segment, manifest_text)
    except SpoolError:
        # The coordinator compares all other rows of the plan again, so it needs no ids.
        return Skipped(problem, part.taken, None, None)
    return Skipped(problem, part.taken, part.taken_from(manifest.ids or ()), manifest.acknowledge)


def _skip_unplanned(segment: Segment, nonce: str) -> Steps[Skipped]:
    numbers = sorted(numbers_of((yield List(PLANS))))
    plans = yield Get([numbered(PLANS, number) for number in numbers])
    for number, content in zip(numbers, plans, strict=True):
        if any(part.segment == segment for part in Plan.read(number, content).parts):
            raise SpoolError(f"{segment.path} is in plan {number}; write {number} instead of 0")
    # After the plans, because a committed plan is deleted after its manifests.
    manifest, data = yield Get([segment.manifest, segment.path])
    if manifest is None:
        raise SpoolError(f"{segment.manifest} does not exist, so the segment is in no batch")
    try:
        Manifest.read(segment, manifest)
    except DamagedFile as error:
        problem = str(error)
    else:
        raise SpoolError(f"{segment.manifest} can be read; the segment must not be left out yet")
    try:
        manifest_of_rows(segment, data, problem)
    except DamagedFile as error:
        problem = str(error)
    else:
        raise SpoolError(f"{segment.path} can be read; it must not be left out")
    yield from put(skip_path(0, segment), text(nonce, problem=problem))
    return Skipped(problem, None, None, None)


def _part_of(plan: Plan, segment: Segment) -> Part:
    for part in plan.parts:
        if part.segment == segment:
            return part
    names = ", ".join(part.segment.path for part in plan.parts)
    raise SpoolError(f"{segment.path} is not in plan {plan.number}, which has {names or 'none'}")
