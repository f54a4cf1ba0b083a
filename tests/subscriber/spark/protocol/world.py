"""A simulated world: a store, a server, receivers and engines, whose steps a test interleaves."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import (
    START,
    Coordinator,
    CoordinatorSettings,
    Offset,
)
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.protocol.receiver import Decision, Receiver, Seen, Written
from pullstream.spark.protocol.storage import (
    Create,
    Get,
    List,
    Operation,
    Steps,
    carry_out,
    run,
)
from pullstream.spark.stores import StoredFile
from tests.subscriber.spark.protocol.batch_rows import rows_of

SUBSCRIPTION = "projects/p/subscriptions/s"
LEASE = 60.0
WINDOW = 2400.0
# A committed message may be redelivered for this time, as the documentation says.
REDELIVERED = WINDOW / 2 - LEASE
DAY = 86_400.0
# The share of a receiver: about five segments.
SHARE = 4000

# A place in the life of a party: before an operation on the store, or a named one.
Point = Operation | str
Life = Generator[Point, Any, None]


class Lost(OSError):
    """A call to the store has failed, as far as the caller knows."""


class Died(Exception):
    """An engine ends, because another one has used its checkpoint."""


class Store:
    """A store in memory, which implements `Storage`. Its clock may jump."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.files_by_path: dict[str, tuple[bytes, float]] = {}
        self.late: list[tuple[float, str, bytes]] = []
        self.skew = 0.0

    def create(self, path: str, data: bytes) -> bool:
        if path in self.files_by_path:
            return False
        self.put(path, data)
        return True

    def put(self, path: str, data: bytes) -> None:
        self.files_by_path[path] = data, self._world.now + self.skew

    def get(self, path: str) -> bytes | None:
        return self.files_by_path[path][0] if path in self.files_by_path else None

    def open(self, path: str) -> pa.NativeFile:
        if path not in self.files_by_path:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.files_by_path[path][0])

    def files(self, prefix: str = "") -> Iterator[StoredFile]:
        for path in list(self.files_by_path):
            if not prefix or path.startswith(f"{prefix}/"):
                data, modified = self.files_by_path[path]
                yield StoredFile(path, len(data), modified)

    def delete(self, path: str) -> None:
        self.files_by_path.pop(path, None)

    def map_all(self, function: Callable[[Any], Any], values: Iterable[Any]) -> Iterable[Any]:
        return map(function, values)

    def land(self) -> None:
        """Let the late puts arrive that are due."""
        due = [one for one in self.late if one[0] <= self._world.now]
        self.late = [one for one in self.late if one not in due]
        for _, path, data in due:
            self.create(path, data)


class Server:
    """A subscription. It redelivers messages, mostly those without an acknowledgement."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.published: list[str] = []
        self.acked: dict[str, float] = {}
        self._leased_until: dict[str, float] = {}

    def publish(self, number: int) -> None:
        # As Google's ids: numbers. Some are texts, as other servers may have.
        for _ in range(number):
            place = len(self.published)
            self.published.append(f"m{place}" if place % 7 == 3 else str(10**16 + place))

    def pull(self, number: int, again: float = 0.0) -> list[str]:
        """Deliver messages; with the probability `again`, each one that need not come."""
        rng, now = self._world.rng, self._world.now
        found = []
        for one in self.published:
            is_due = one not in self.acked and self._leased_until.get(one, 0.0) <= now
            if (is_due or (again and rng.random() < again)) and not self._is_late(one):
                found.append(one)
        found = rng.sample(found, min(number, len(found)))
        self.extend(found)
        return found

    def _is_late(self, one: str) -> bool:
        """Return whether a message is not redelivered any more, because of its age."""
        now = self._world.now
        return now - self._world.committed_at.get(one, now) > REDELIVERED

    def is_finished(self) -> bool:
        """Return whether all messages are committed, and acknowledged if they may still come."""
        committed = self._world.committed_at
        return all(
            one in committed and (one in self.acked or self._is_late(one)) for one in self.published
        )

    def extend(self, ids: Sequence[str]) -> None:
        self._leased_until.update(dict.fromkeys(ids, self._world.now + LEASE))

    def give_back(self, ids: Sequence[str]) -> None:
        self._leased_until.update(dict.fromkeys(ids, 0.0))

    def ack(self, ids: Sequence[str]) -> None:
        self._world.check_ack(ids)
        self.acked.update(dict.fromkeys(ids, self._world.now))


@dataclass
class Checkpoint:
    """The logs of an engine, and its table: the ids of each batch, by the plan's number."""

    offsets: dict[int, Offset] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    batches: dict[int, list[str]] = field(default_factory=dict)

    def ids(self) -> list[str]:
        return [one for ids in self.batches.values() for one in ids]


@dataclass
class Party:
    """A receiver or an engine, which may sleep."""

    life: Life
    kind: str
    checkpoint: Checkpoint | None = None
    wakes_at: float = 0.0
    # When it came to its present point.
    since: float = 0.0
    point: Point | None = None
    listed: list[StoredFile] | None = None
    error: Exception | None = None


class World:
    """The world of one example. All randomness comes from its seed."""

    def __init__(
        self, seed: int = 0, acknowledge: Acknowledge = Acknowledge.COMMITTED, **settings: Any
    ) -> None:
        self.rng = Random(seed)
        self.acknowledge = acknowledge
        self.now = 1000.0
        self.store = Store(self)
        self.server = Server(self)
        self.committed_at: dict[str, float] = {}
        self.parties: list[Party] = []
        self.faults = 0.0
        self.again = 0.0
        self.log: list[str] = []
        self._names = count(1)
        self.checkpoints: list[Checkpoint] = []
        self.settings = CoordinatorSettings(
            subscription=SUBSCRIPTION,
            acknowledge=acknowledge,
            **{
                "window": WINDOW,
                "lease": LEASE,
                "max_rows": 12,
                "capacity": 100_000,
                **settings,
            },
        )

    def leap(self, seconds: float) -> None:
        """Let time pass in which no party does anything. Late puts arrive in time."""
        end = self.now + seconds
        for due, *_ in sorted(self.store.late):
            self.now = max(self.now, min(due, end))
            self.store.land()
        self.now = end

    # ---- parts -----------------------------------------------------------------------------------

    def elapsed(self) -> float:
        return self.now

    def new_name(self) -> str:
        return f"n{next(self._names)}x{self.rng.randrange(16**6):06x}"

    def receiver(self, share: int = 10**9) -> Receiver:
        return Receiver(
            SUBSCRIPTION,
            self.acknowledge,
            max_age=LEASE,
            share=share,
            elapsed=self.elapsed,
            new_name=self.new_name,
        )

    def coordinator(self) -> Coordinator:
        return Coordinator(self.settings, elapsed=self.elapsed, new_name=self.new_name)

    def run(self, steps: Steps[Any]) -> Any:
        """Carry out steps without faults and without other parties."""
        return run(steps, self.store)

    def write(self, receiver: Receiver, *ids: str) -> Written:
        """Let a receiver write a segment with these messages."""
        written: Written = self.run(receiver.write(rows(ids), self.now))
        return written

    def files(self, folder: str = "") -> list[str]:
        return sorted(file.path for file in self.store.files(folder))

    # ---- lives -----------------------------------------------------------------------------------

    def add_receiver(self) -> Party:
        return self._add(self._receive(), "receiver")

    def add_engine(self, checkpoint: Checkpoint) -> Party:
        if checkpoint not in self.checkpoints:
            self.checkpoints.append(checkpoint)
        return self._add(self._process(checkpoint), "engine", checkpoint)

    def _add(self, life: Life, kind: str, checkpoint: Checkpoint | None = None) -> Party:
        party = Party(life, kind, checkpoint)
        self.parties.append(party)
        self._resume(party, None)
        return party

    def _receive(self) -> Life:
        receiver = self.receiver(share=SHARE)
        held: dict[Segment, list[str]] = {}
        yield from receiver.start()
        while True:
            yield "receive"
            for ids in held.values():
                self.server.extend(ids)
            since = self.now
            ids = self.server.pull(self.rng.randint(1, 5), self.again)
            assert receiver.waiting_bytes <= SHARE, "the receiver has more than its share"
            if ids and receiver.has_room(1000):
                yield "received"
                try:
                    written = yield from receiver.write(rows(ids), since)
                except Lost:
                    self.server.give_back(ids)
                    continue
                yield "written"
                if written.decision is Decision.HOLD:
                    held[written.segment] = ids
                elif written.decision is Decision.ACKNOWLEDGE:
                    yield from self._acknowledge(ids)
                else:
                    self.server.give_back(ids)
            else:
                self.server.give_back(ids)
            try:
                seen: Seen = yield from receiver.look()
            except Lost:
                continue
            for segment in seen.committed:
                if segment in held:
                    yield from self._acknowledge(held.pop(segment))
            for segment in seen.vanished:
                self.server.give_back(held.pop(segment, []))

    def _acknowledge(self, ids: list[str]) -> Life:
        yield "acknowledge"
        if self.rng.random() >= self.faults:
            self.server.ack(ids)

    def _process(self, log: Checkpoint) -> Life:
        """Live as Spark's engine, in the order of its calls.

        Some batches are planned while the engine processes the one before. The engine gets such a
        batch before the one before is marked.
        """
        coordinator = self.coordinator()
        batch = max(log.offsets, default=0)
        start = log.offsets.get(batch - 1, START)
        end = log.offsets.get(batch)
        if end is not None and batch in log.commits:
            start, end, batch = end, None, batch + 1
        while True:
            if end is None:
                end = yield from coordinator.planned_ahead(start)
                if end is None:
                    end = yield from coordinator.latest(start)
                if end is not None:
                    yield "offset log"
                    if log.offsets.setdefault(batch, end) != end:
                        raise Died("offset log")
            if end is not None:
                plan = yield from coordinator.plan(start, end)
                read = [part.segment.path for part in plan.parts if part.taken]
                if self.rng.random() < 0.3:
                    yield from coordinator.commit(start.plan)
                    yield from coordinator.plan_ahead(end)
                contents = iter((yield Get(read)))
                table = rows_of(
                    plan, [next(contents) if part.taken else None for part in plan.parts]
                )
                yield "sink"
                ids = table.column("message_id").to_pylist() if table.num_columns else []
                self.commit(log, end.plan, ids)
                yield "commit log"
                if batch in log.commits:
                    raise Died("commit log")
                log.commits.add(batch)
                start, end, batch = end, None, batch + 1
            yield "trigger"
            if self.rng.random() < (0.2 if self.faults else 0.6):
                yield from coordinator.tidy()

    def commit(self, log: Checkpoint, plan: int, ids: list[str]) -> None:
        """Commit a batch to the table under its plan's number, if it is not there."""
        earlier = log.batches.setdefault(plan, ids)
        assert earlier == ids, f"plan {plan} had {earlier} and has {ids}"
        for one in ids:
            self.committed_at.setdefault(one, self.now)
        if len(self.checkpoints) == 1:
            everything = log.ids()
            assert len(everything) == len(set(everything)), f"plan {plan} has a message again"

    # ---- steps -----------------------------------------------------------------------------------

    def step(self, party: Party) -> None:
        """Carry out the operation at which a party is, and let it go on to its next point."""
        if self.store.late:
            self.store.land()
        point = party.point
        if isinstance(point, List) and party.listed is None:
            # A list is no snapshot: its second half is read later.
            found = sorted(self.store.files(point.folder))
            party.listed = found[: self.rng.randint(0, len(found))]
            return
        is_receiver = party.kind == "receiver"
        if isinstance(point, Create) and is_receiver and self.now - party.since > WINDOW:
            # The one sleep that the protocol does not cover: docs/spark-format.md, "Limits".
            self._resume(party, None, Lost(point.path))
            return
        if isinstance(point, Create) and self.rng.random() < self.faults:
            self._fail(party, *point)
            return
        result: Any = None
        try:
            if isinstance(point, List):
                earlier, party.listed = party.listed or [], None
                found = sorted(self.store.files(point.folder))
                place = bisect([file.path for file in found], earlier[-1].path) if earlier else 0
                result = earlier + found[place:]
            elif point is not None and not isinstance(point, str):
                result = carry_out(point, self.store)
        except OSError as error:
            self._resume(party, None, error)
        else:
            self._resume(party, result)

    def _fail(self, party: Party, path: str, data: bytes) -> None:
        """Fail a put before, after or long before it has an effect. Half of them are repeated."""
        match self.rng.randrange(3):
            case 0:
                self.store.create(path, data)
            case 1:
                self.store.late.append((self.now + self.rng.choice([1, 100, 700]), path, data))
        if self.rng.random() < 0.5:
            self._resume(party, None, Lost(path))

    def _resume(self, party: Party, result: Any, error: Exception | None = None) -> None:
        party.since = self.now
        try:
            party.point = party.life.throw(error) if error else party.life.send(result)
        except StopIteration:
            self.parties.remove(party)
        except AssertionError:
            raise
        except Exception as failure:
            party.error = failure
            self.log.append(f"{party.kind}: {failure!r}")
            if party in self.parties:
                self.parties.remove(party)

    def kill(self, party: Party) -> None:
        party.life.close()
        self.parties.remove(party)

    def until(self, party: Party, point: str) -> None:
        """Let a party go on alone until it is at a named point."""
        for _ in range(1000):
            if party.point == point:
                return
            self.step(party)
        raise AssertionError(f"the party does not come to {point}; the log is {self.log}")

    # ---- checks ----------------------------------------------------------------------------------

    def check_ack(self, ids: Sequence[str]) -> None:
        if self.acknowledge is Acknowledge.COMMITTED:
            missing = set(ids) - self.committed_at.keys()
            assert not missing, f"{missing} are acknowledged and not committed"

    def check_end(self) -> None:
        """Check that each message is in the table once, and acknowledged."""
        committed = [one for log in self.checkpoints for one in log.ids()]
        assert sorted(committed) == sorted(self.server.published), (
            f"lost {set(self.server.published) - set(committed)}, {self.log[-5:]}"
        )


def rows(ids: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch({"message_id": pa.array(ids, pa.string())})
