"""Rules of the coordinator: it plans batches, marks committed ones, and deletes finished files.

The coordinator is the engine's source, on the driver. The engine writes each plan down, processes
it, and asks for the next one with the offset of the last one. So the start of a question proves
that everything up to it is committed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import chain, islice
from math import inf
from secrets import token_hex
from typing import NamedTuple

from pullstream.spark.errors import DamagedFile, MissingSegment, SpoolError
from pullstream.spark.stores import StoredFile

from .acknowledge import Acknowledge
from .known_ids import KnownIds
from .layout import (
    MANIFESTS,
    MARKS,
    OWNERS,
    PLANS,
    SKIPS,
    Manifest,
    Mark,
    Owner,
    Part,
    Plan,
    Segment,
    manifest_of_rows,
    numbered,
    numbers_of,
    read_segment,
    segments_of,
    skips_of,
)
from .receiver import found_folder
from .remainders import tidy
from .state import State
from .storage import Delete, Get, List, Steps, put
from .store_clock import StoreClock

# Manifests that are read at once.
_AT_ONCE = 64

# A batch leaves out at most this many times `max_rows`. Its plan has the number of each such row.
_LEFT_OUT = 10

# Seconds for which a committed plan can be replayed with `stored`, where its segments are the only
# copies.
_REPLAYABLE = 3600.0

# Redeliveries of messages that were committed before this time, in seconds, are no late answers.
_LONG_AGO = 600.0

# Seconds between two lists of an idle query.
_IDLE = 1.0


class Offset(NamedTuple):
    """A position of the engine: everything up to a plan.

    Attributes:
        plan: Number of the plan; 0 for the first offset of a checkpoint.
        chain: Name of the chain of plans that the checkpoint follows.
    """

    plan: int
    chain: str


START = Offset(0, "")


@dataclass(frozen=True, kw_only=True)
class CoordinatorSettings:
    """Settings of a Coordinator. Durations are in seconds, sizes in bytes.

    Attributes:
        subscription: Full name of the subscription.
        acknowledge: When the receivers acknowledge.
        window: For half of this time at least, redeliveries of committed messages are recognized.
        capacity: Number of known ids.
        lease: The `max_age` of the receivers.
        max_rows: Limit of a batch, for the rows that it does not leave out. A single larger segment
            still passes.
        max_bytes: Limit of the size of these rows. A single larger segment still passes.
    """

    subscription: str
    acknowledge: Acknowledge = Acknowledge.COMMITTED
    window: float = 86_400.0
    capacity: int = 5_000_000
    lease: float = 60.0
    max_rows: int = 50_000
    max_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.orphan_age + self.lease > self.window / 2:
            raise ValueError(
                f"the lease is {self.lease} seconds and the window of known ids {self.window}; the "
                "lease must be at most a quarter of the window"
            )

    @property
    def orphan_age(self) -> float:
        """Age at which a segment without a manifest is a remainder."""
        return self.window / 4


@dataclass
class Counts:
    """Numbers that a coordinator has counted since its start.

    Attributes:
        rows: Rows in its batches.
        left_out: Rows that it left out, because their messages were known.
        long_committed: Those of them whose messages were committed at least 10 minutes before.
        waiting: Segments in no plan, when it listed last.
    """

    rows: int = 0
    left_out: int = 0
    long_committed: int = 0
    waiting: int = 0


class Coordinator:
    """The planner of a folder. One thread uses it.

    The numbers in the comments are the steps in docs/spark-format.md. After an error, the engine
    must create a new coordinator.

    Args:
        settings: The settings.
        elapsed: A clock that no one sets and that also runs while the machine sleeps, in seconds.
        new_name: Makes names and nonces.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        elapsed: Callable[[], float],
        new_name: Callable[[], str] = lambda: token_hex(16),
    ) -> None:
        self._settings = settings
        self._elapsed = elapsed
        self._new_name = new_name
        self._nonce = new_name()
        self._clock = StoreClock(elapsed)
        self._state: State | None = None
        self._known = KnownIds(settings.window, settings.capacity, elapsed)
        # By plan: when it was committed, or later.
        self._marked: dict[int, float] = {}
        # Manifests that were read and are in no plan, in case they are in one soon.
        self._read: dict[Segment, Manifest] = {}
        # Numbers that the last list lacked although a later number of the receiver was there.
        self._gaps: set[Segment] = set()
        self._skips: dict[int, set[Segment]] = defaultdict(set)
        # The segments at which an "available now" run ends.
        self._end: set[Segment] | None = None
        self._idle_until = -inf
        # Segments that were marked since `take_marked` was called.
        self._new_marks: list[Segment] = []
        self.counts: Counts = Counts()

    # ---- called by the engine --------------------------------------------------------------------

    def open(self, offset: Offset) -> Steps[State]:
        """On the first call, read the folder. Check that an offset belongs to the chain.

        Raises:
            SpoolError: Another query has taken over, or the offset does not belong to this folder.
        """
        if self._state is None:
            self._state = yield from self._start(offset)
        if offset != START and offset.chain != self._state.owner.chain:
            raise _taken_over(self._state.owner.number, offset.chain)
        return self._state

    def latest(self, start: Offset) -> Steps[Offset | None]:
        """Mark everything up to `start` as committed, and return the next offset.

        Returns:
            The offset of the plan after `start`; None if nothing is waiting.

        Raises:
            SpoolError: Another query has taken over, or the offset does not belong to this folder.
            MissingSegment: The offset is older than the replayable plans.
        """
        state = yield from self.open(start)
        number = start.plan or state.owner.after
        if number > state.mark:
            yield from self.commit(number)
        following = number + 1
        if following < state.replayable_from or (
            number < state.mark and following not in state.plans
        ):
            raise MissingSegment(
                f"the checkpoint's offset is plan {number}, but plans up to {state.mark} are "
                "committed: the checkpoint is an old copy, or has lost its last batches. Restore "
                "the newest checkpoint, or start with an empty one"
            )
        if following not in state.plans and not (yield from self._plan(state, following)):
            return None
        return Offset(following, state.owner.chain)

    def plan_ahead(self, last: Offset) -> Steps[bool]:
        """Plan the batch after the one that the engine processes, and return whether there is one.

        Args:
            last: The newest offset that the engine has. `latest` or `planned_ahead` returns the
                next one when the engine has committed this one.

        Raises:
            SpoolError: Another query has taken over.
        """
        state, number = self._opened(), last.plan + 1
        return number in state.plans or (yield from self._plan(state, number))

    def planned_ahead(self, start: Offset) -> Steps[Offset | None]:
        """Return the next offset if `plan_ahead` has planned it, as fast as possible.

        Everything up to `start` is committed, but is not marked yet: call `commit` soon.

        Raises:
            SpoolError: Another query has taken over, or the offset does not belong to this folder.
        """
        state = yield from self.open(start)
        if start.plan + 1 not in state.plans or start.plan < state.mark:
            return None
        yield from self._check_owner(state)  # 9
        return Offset(start.plan + 1, state.owner.chain)

    def planned(self, offset: Offset) -> Plan:
        """Return a plan that this coordinator has returned. Another thread may call this."""
        return self._opened().plans[offset.plan]

    @property
    def mark(self) -> int:
        """The newest committed plan."""
        return self._opened().mark

    def hand_over(self, manifest: Manifest) -> None:
        """Accept a manifest that a receiver of this process has written, so it is not read."""
        self._read[manifest.segment] = manifest
        self._idle_until = -inf

    def take_marked(self) -> Sequence[Segment]:
        """Return the segments that were marked since the last call."""
        marked, self._new_marks = self._new_marks, []
        return marked

    def plan(self, start: Offset, end: Offset) -> Steps[Plan]:
        """Return the plan of the batch from `start` to `end`.

        Raises:
            SpoolError: Another query has taken over, or the offset does not belong to this folder.
            MissingSegment: The plan is not there any more.
        """
        state = yield from self.open(end)
        if start.plan > state.mark:
            yield from self.commit(start.plan)
        plan = state.plans.get(end.plan)
        if plan is None:
            raise MissingSegment(
                f"{numbered(PLANS, end.plan)} does not exist; there are plans "
                f"{sorted(state.plans) or 'none'}. If the checkpoint is complete, its messages were"
                " not acknowledged. If it is an old copy, its rows may be in the sink"
            )
        return plan

    def commit(self, number: int) -> Steps[None]:
        """Mark the plans up to a number as committed, and delete files that they needed.

        Call it for more than `latest` does only if the target proves that they are committed.

        Raises:
            SpoolError: Another query has taken over, or there is no such plan.
        """
        state = self._opened()
        yield from self._check_owner(state)  # 9
        for one in range(state.mark + 1, number + 1):
            if one not in state.plans:
                raise SpoolError(
                    f"the checkpoint's offset is plan {number}, but the last plan of the spool is "
                    f"{max(state.plans, default=state.mark)}: the spool belongs to another "
                    "checkpoint, or is an old copy. Nothing was acknowledged"
                )
            yield from self._mark(state, one)
            yield from self._finish(state)

    def expect_segment(self) -> None:
        """Let the next `latest` list at once, because this process has written a segment."""
        self._idle_until = -inf

    def end_here(self, start: Offset) -> Steps[None]:
        """Let `latest` return None after the segments that are there now."""
        yield from self.open(start)
        self._end = set(segments_of((yield List(MANIFESTS))))

    def tidy(self) -> Steps[float | None]:
        """Delete remainders and forget old ids. Call it about once a minute.

        Returns:
            A time of the store's clock. Remains of interrupted calls from before this time can be
            deleted from the store. None: not now.
        """
        state = self._opened()
        yield from self._check_owner(state)
        tombstones = {name for name, manifest in self._read.items() if manifest.ids is None}
        settings = self._settings
        return (
            yield from tidy(
                state,
                self._clock,
                self._known,
                tombstones,
                window=settings.window,
                orphan_age=settings.orphan_age,
                nonce=self._nonce,
            )
        )

    @property
    def known_ids(self) -> KnownIds:
        """The ids of committed messages."""
        return self._known

    # ---- start -----------------------------------------------------------------------------------

    def _opened(self) -> State:
        if self._state is None:
            raise SpoolError("a coordinator must be opened first")
        return self._state

    def _start(self, offset: Offset) -> Steps[State]:
        yield from found_folder(self._settings.subscription, self._nonce)
        newest = max(numbers_of((yield List(OWNERS))), default=0)
        owner = Owner.read(newest, (yield Get([numbered(OWNERS, newest)]))[0])
        marks = numbers_of((yield List(MARKS)))
        if offset == START or not newest:  # 8
            after = max([offset.plan, owner.after, *marks])
            chain = offset.chain or self._new_name()
            owner = Owner(newest + 1, self._settings.subscription, chain, after, self._nonce)
            content = yield from self._clock.put(numbered(OWNERS, newest + 1), owner.text())
            owner = Owner.read(newest + 1, content)
        if owner.chain != (offset.chain or owner.chain) or (
            offset == START and owner.nonce != self._nonce
        ):
            raise _taken_over(owner.number, offset.chain)
        # From here on, no older owner marks or plans anything of which this one does not learn.
        marks = numbers_of((yield List(MARKS)))
        mark = max([owner.after, *marks])
        kept = mark + 1
        if mark in marks:
            kept = Mark.read(mark, (yield Get([numbered(MARKS, mark)]))[0]).replayable_from
        state = State(owner._replace(after=mark) if offset == START else owner, mark, kept)
        plans = sorted(number for number in numbers_of((yield List(PLANS))) if number >= kept)
        contents = yield Get([numbered(PLANS, number) for number in plans])
        for number, segment in skips_of((yield List(SKIPS))):
            self._skips[number].add(segment)
        yield from self._drop_manifests(self._skips.pop(0, set()))
        yield from self._known.load()
        newest_mark = max((file.modified for file in marks.values()), default=0.0)
        for number, content in zip(plans, contents, strict=True):
            plan = Plan.read(number, content)
            # The query may start again before a plan is old, and its age must not start at zero.
            age = newest_mark - marks[number].modified if number in marks else 0.0
            self._marked[number] = self._elapsed() - age
            if number > max(self._known.newest, mark - 1):
                plan = yield from self._load_ids(state, plan)
            state.add(plan)
        if mark in state.plans:
            yield from self._finish(state)
        yield from self._check_owner(state)
        return state

    def _drop_manifests(self, segments: Iterable[Segment]) -> Steps[None]:
        """Delete damaged manifests, so that their segments are remainders."""
        for segment in segments:
            content = (yield Get([segment.manifest]))[0]
            if content is not None and Manifest.if_whole(segment, content) is None:
                yield Delete([segment.manifest])

    def _load_ids(self, state: State, plan: Plan) -> Steps[Plan]:
        """Learn which ids a plan has taken, from the manifests, which stay until they are known.

        Returns:
            The plan, without the rows of segments to skip.
        """
        skipped = self._skips.get(plan.number, set())
        yield from self._read_manifests((one.segment for one in plan.parts), planned=True)
        manifests = {}
        for part in plan.parts:
            if part.segment in skipped:
                continue
            manifest = self._read.get(part.segment)
            if manifest is None and part.taken and plan.number > state.mark:
                # Somebody has deleted or damaged it. The rows have the ids, too.
                data = (yield Get([part.segment.path]))[0]
                ids = read_segment(plan.number, part, data).column("message_id").to_pylist()
                manifest = Manifest(part.segment, ids, len(data))
            if manifest is not None:
                manifests[part.segment] = manifest
        is_older = plan.nonce != self._nonce
        if is_older and any(number <= plan.number for number, some in self._skips.items() if some):
            # Rows that were left out because a skipped segment had their messages come back.
            again = {part.segment: part for part in self._compare(state, [*manifests.values()])[0]}
            none = (part._replace(left_out=range(part.rows)) for part in plan.parts)
            plan = plan._replace(parts=[again.get(part.segment, part) for part in none])
        taken = (
            part.taken_from(manifests[part.segment].ids or ())
            for part in plan.parts
            if part.segment in manifests
        )
        state.ids[plan.number] = dict.fromkeys(chain.from_iterable(taken))
        return plan

    def _check_owner(self, state: State) -> Steps[None]:
        owners = numbers_of((yield List(OWNERS)))
        self._clock.learn(owners.values())
        newest = max(owners, default=0)
        if newest != state.owner.number:
            raise _taken_over(newest, state.owner.chain)

    # ---- committed plans -------------------------------------------------------------------------

    def _mark(self, state: State, number: int) -> Steps[None]:
        plan = state.plans[number]
        self._marked[number] = self._elapsed()
        kept = number
        if self._settings.acknowledge is Acknowledge.STORED:
            # The files of a plan go some time after the plan that follows it was committed.
            recent = self._elapsed() - _REPLAYABLE
            kept = min(one for one in state.plans if self._marked.get(one + 1, inf) > recent)
        segments = [part.segment for part in plan.parts if part.segment not in self._skips[number]]
        state.replayable_from = max(state.replayable_from, min(kept, number))
        mark = Mark(number, state.replayable_from, segments)
        yield from self._clock.put(numbered(MARKS, number), mark.text(self._nonce))  # 10
        state.mark = number
        self._new_marks += segments

    def _finish(self, state: State) -> Steps[None]:
        """Delete the files that the newest mark makes superfluous. Repeated after a crash."""
        plan = state.plans[state.mark]
        if self._known.newest < plan.number:
            yield from self._known.add(plan.number, state.ids[plan.number])  # 11
        state.ids.pop(plan.number, None)
        yield Delete([part.segment.manifest for part in plan.parts])  # 12
        for number in sorted(one for one in state.plans if one < state.replayable_from):
            old = state.plans[number]
            yield Delete([part.segment.path for part in old.parts])  # 13
            yield Delete([numbered(PLANS, number)])
            del state.plans[number]
            self._marked.pop(number, None)

    # ---- planning --------------------------------------------------------------------------------

    def _plan(self, state: State, number: int) -> Steps[bool]:
        """Write the plan of a number, and return whether there is one."""
        if self._elapsed() < self._idle_until:
            return False
        listed = segments_of((yield List(MANIFESTS)))  # 14
        planned = state.segments(number)
        waiting = {name: file for name, file in listed.items() if name not in planned}
        if self._end is not None:
            waiting = {name: file for name, file in waiting.items() if name in self._end}
        parts = yield from self._choose(state, waiting)
        self._read = {one: read for one, read in self._read.items() if one in waiting}
        if not parts:
            self._idle_until = self._elapsed() + _IDLE
            return False
        plan = Plan(number, state.owner.number, self._nonce, parts)
        path = numbered(PLANS, number)
        plan = Plan.read(number, (yield from put(path, plan.text())))  # 16
        yield from self._check_plan(state, number)  # 17
        is_mine = plan.nonce == self._nonce
        if not is_mine and plan.owner == state.owner.number:
            raise SpoolError(
                f"plan {number} is from another process with the same checkpoint. Stop one of the "
                "two; the other one continues when it is started again"
            )
        state.add((yield from self._load_ids(state, plan)))
        for part in parts if is_mine else ():
            self.counts.rows += part.taken
            self.counts.left_out += len(part.left_out)
        return True

    def _check_plan(self, state: State, number: int) -> Steps[None]:
        """Check that no other coordinator has gone on while this one wrote its plan."""
        marks = numbers_of((yield List(MARKS)))
        self._clock.learn(marks.values())
        if (newest := max(marks, default=0)) >= number:
            raise SpoolError(
                f"plan {number} is too late: another query has committed plans up to {newest}. "
                "Use a separate subscription and spool for each query"
            )
        yield from self._check_owner(state)

    def _choose(self, state: State, waiting: dict[Segment, StoredFile]) -> Steps[list[Part]]:
        """Return the parts of the next batch, oldest first, and each receiver's in order.

        Rows that the batch leaves out do not count towards its limits. Otherwise batches would have
        few rows, or none, after many messages were delivered again.
        """
        self.counts.waiting = len(waiting)
        order = deque(self._without_gaps(state, waiting))
        limits = self._settings
        parts: list[Part] = []
        chosen: set[str] = set()
        rows, left_out, size = 0, 0, 0.0
        while manifests := (
            yield from self._next_manifests(order, limits.max_rows - rows, limits.max_bytes - size)
        ):
            compared, old = self._compare(state, manifests, chosen)
            for manifest, part in zip(manifests, compared, strict=True):
                rows += part.taken
                left_out += len(part.left_out)
                size += manifest.size * part.taken / max(part.rows, 1)
                is_over = rows > limits.max_rows or size > limits.max_bytes
                if parts and (is_over or left_out > limits.max_rows * _LEFT_OUT):
                    return parts
                parts.append(part)
                self.counts.long_committed += len(old & set(manifest.ids or ()))
            if not left_out:
                break
            # There is room for as many rows as were left out.
            chosen.update(one for manifest in manifests for one in manifest.ids or ())
        return parts

    def _next_manifests(
        self, order: deque[Segment], rows: float, size: float
    ) -> Steps[list[Manifest]]:
        """Take manifests from an order: one, and more that fit into the room if all is new."""
        taken: list[Manifest] = []
        while order:
            if order[0] not in self._read:
                yield from self._read_manifests(islice(order, _AT_ONCE), planned=False)
            manifest = self._read.get(order[0])
            if manifest is not None and manifest.ids is not None:
                rows -= len(manifest.ids)
                size -= manifest.size
                if taken and (rows < 0 or size < 0):
                    break
                taken.append(manifest)
            order.popleft()
        return taken

    def _read_manifests(self, segments: Iterable[Segment], *, planned: bool) -> Steps[None]:
        """Read manifests that were not read, if they are there, and for a plan also undamaged."""
        new = [segment for segment in segments if segment not in self._read]
        contents = yield Get([segment.manifest for segment in new])
        for segment, content in zip(new, contents, strict=True):
            if content is None:
                continue
            try:
                self._read[segment] = Manifest.read(segment, content)
            except DamagedFile as error:
                if not planned:
                    # Its presence says that the segment is complete.
                    data = (yield Get([segment.path]))[0]
                    self._read[segment] = manifest_of_rows(segment, data, str(error))

    def _without_gaps(self, state: State, waiting: dict[Segment, StoredFile]) -> list[Segment]:
        """Return the segments in the order in which they are planned.

        A list is no snapshot: it may have a manifest and lack the one that was written before. Then
        the later one waits for the next list. If that lacks the number again, it does not exist.
        """
        by_receiver: dict[str, list[Segment]] = defaultdict(list)
        for segment in sorted(waiting):
            by_receiver[segment.receiver].append(segment)
        gaps: set[Segment] = set()
        whole: list[tuple[float, Segment]] = []
        for name, segments in by_receiver.items():
            expected = state.last_numbers.get(name, segments[0].number - 1) + 1
            newest = 0.0
            for segment in segments:
                gap = {Segment(name, number) for number in range(expected, segment.number)}
                if not gap <= self._gaps:
                    gaps |= gap
                    break
                # A receiver's later segment is no older, even if the store's clock was set back.
                newest = max(newest, waiting[segment].modified)
                whole.append((newest, segment))
                expected = max(expected, segment.number + 1)
        self._gaps = gaps
        return [segment for _, segment in sorted(whole)]

    def _compare(
        self, state: State, manifests: Sequence[Manifest], chosen: Set[str] = frozenset()
    ) -> tuple[list[Part], Set[str]]:
        """Compare the ids with the known ones, and with each other.

        Args:
            state: The folder.
            manifests: The manifests.
            chosen: The ids of the manifests before them in the batch.

        Returns:
            The parts of a plan, in which each message is once, and only if it is new. And the
            messages that were committed long ago.
        """
        ids = [one for manifest in manifests for one in manifest.ids or ()]
        found, old = self._known.find(ids, _LONG_AGO)  # 15
        known = [found, chosen, *(some.keys() for some in state.ids.values())]
        if all(some.isdisjoint(ids) for some in known) and len(set(ids)) == len(ids):
            # All are new, as they nearly always are.
            return [Part(one.segment, len(one.ids or ()), []) for one in manifests], old
        taken = found.union(*known)
        parts = []
        for manifest in manifests:
            left_out = []
            for row, one in enumerate(manifest.ids or ()):
                if one in taken:
                    left_out.append(row)
                taken.add(one)
            parts.append(Part(manifest.segment, len(manifest.ids or ()), left_out))
        return parts, old


def _taken_over(owner: int, chain: str) -> SpoolError:
    return SpoolError(
        f"the spool has owner {owner}, which is not of the chain {chain or 'that begins here'}: "
        "another query has taken it over, or it was exchanged. Use a separate subscription and "
        "spool for each query. Nothing was acknowledged"
    )
