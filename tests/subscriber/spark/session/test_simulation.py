"""The engine simulator on the broker: no failure at any step loses or doubles a message."""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.session.prefetch import PrefetchMode
from pullstream_emulator import Emulator
from tests.subscriber.ended_subscribers import wait_until_unread
from tests.subscriber.spark.engine import Checkpoint, Engine, Killed, Sink
from tests.subscriber.spark.session.world import (
    LEASE,
    SUBSCRIPTION,
    Ingestion,
    MortalStore,
    SessionReader,
    acked,
    make_subscription,
    publish,
    reader_of,
    settings_of,
)


class Run(NamedTuple):
    """One run of a query: its end, and the events before it. Steps are counted from 1.

    Attributes:
        dies_at: The step before which it is killed, or stopped if `gently`.
        disk: The change of the disk at which it is killed (0: none), and how far that change gets.
        expires_at: The step before which all leases end at the broker.
        publishes_at: The step before which more messages are published.
        work_ahead: The session's mode of prefetching. In the background, a failing disk would kill
            only that thread.
    """

    dies_at: int
    gently: bool
    disk: int
    how: str
    expires_at: int
    publishes_at: int
    available_now: bool
    work_ahead: PrefetchMode


RUNS = st.builds(
    Run,
    dies_at=st.integers(1, 30),
    gently=st.booleans(),
    disk=st.integers(0, 8),
    how=st.sampled_from(["before", "half", "after"]),
    expires_at=st.integers(0, 20),
    publishes_at=st.integers(0, 20),
    available_now=st.booleans(),
    work_ahead=st.sampled_from(PrefetchMode),
)
PATIENT_RUNS = 10
TO_THE_END = Run(0, False, 0, "", 0, 0, True, PrefetchMode.AT_ONCE)


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Emulator]:
    with Emulator() as emulator:
        yield emulator


class Query:
    """One example: a subscription, a query's checkpoint, spool and sink, and its runs."""

    def __init__(self, broker: Emulator, folder: Path, keys: list[str], **settings: Any) -> None:
        self.broker = broker
        self.keys = keys
        self.settings = settings_of(broker, folder / "spool", **settings)
        self.checkpoint = Checkpoint()
        self.sink = Sink()
        self.published: list[str] = []

    def publish(self, count: int) -> None:
        self.published += publish(self.broker, count, keys=self.keys)

    def live(self, run: Run) -> None:
        numbers = itertools.count(1)

        def step(name: str) -> None:
            self.check_acks()
            number = next(numbers)
            if number == run.expires_at:
                self.broker.clock.advance(LEASE)
            if number == run.publishes_at:
                self.publish(3)
            if number == run.dies_at:
                raise Killed

        dies_at = 0 if run.work_ahead is PrefetchMode.IN_BACKGROUND else run.disk
        storage = MortalStore(Path(self.settings.spool_dir), dies_at, run.how)
        ingestion = Ingestion(self.broker, self.settings, storage, run.work_ahead)
        engine = Engine(
            SessionReader(ingestion.session),
            self.checkpoint,
            self.sink,
            read=reader_of(Path(self.settings.spool_dir)),
            step=step,
            available_now=run.available_now,
        )
        try:
            engine.run()
        except Killed:
            if not run.gently:
                ingestion.kill()
        finally:
            ingestion.stop()
        self.check_acks()

    def live_to_the_end(self) -> None:
        """Run until all messages are acknowledged.

        The messages of a killed process are redelivered when their leases have ended. On a busy
        machine a run may take a slow broker for an empty one.
        """
        for _ in range(PATIENT_RUNS):
            wait_until_unread(self.broker, SUBSCRIPTION)
            self.broker.clock.advance(LEASE)
            self.live(TO_THE_END)
            if self.broker.backlog(SUBSCRIPTION) == 0:
                return

    def check_acks(self) -> None:
        """Check that each acknowledged message is committed, if it must be."""
        if self.settings.acknowledge is Acknowledge.COMMITTED:
            assert acked(self.broker) <= set(self.sink.column("message_id", self.checkpoint))

    def check_end(self) -> None:
        """Check that each message is committed once, in order in its key, and acknowledged."""
        committed = self.sink.column("message_id", self.checkpoint)
        assert sorted(committed) == sorted(self.published)
        assert acked(self.broker) == set(self.published)
        assert self.broker.backlog(SUBSCRIPTION) == 0
        if self.keys != [""]:
            keys = self.sink.column("ordering_key", self.checkpoint)
            for key in self.keys:
                of_key = [int(i) for i, k in zip(committed, keys, strict=True) if k == key]
                assert of_key == sorted(of_key)


@examples(max_examples=40)
@given(
    kind=st.sampled_from(["plain", "ordered", "exactly once", "doubled"]),
    acknowledge=st.sampled_from(Acknowledge),
    count=st.integers(0, 25),
    batch=st.integers(1, 10),
    runs=st.lists(RUNS, max_size=4),
)
def test_simulated_ingest_sessions_with_crashes_commit_each_message_once(
    shared_broker: Emulator,
    kind: str,
    acknowledge: Acknowledge,
    count: int,
    batch: int,
    runs: list[Run],
) -> None:
    """No message is lost or doubled.

    The session is killed at any step or change of the disk, leases end, and messages are delivered
    twice. Every message is committed once and acknowledged after that, and a repeated batch has the
    same rows.
    """
    shared_broker.reset()
    make_subscription(
        shared_broker,
        enable_message_ordering=kind == "ordered",
        enable_exactly_once_delivery=kind == "exactly once",
    )
    if kind == "doubled":
        shared_broker.faults.duplicate_deliveries(times=count + 1)
    keys = ["a", "b"] if kind == "ordered" else [""]
    with tempfile.TemporaryDirectory() as folder:
        query = Query(
            shared_broker,
            Path(folder),
            keys,
            acknowledge=acknowledge,
            max_messages_per_trigger=batch,
        )
        query.publish(count)
        for run in runs:
            query.live(run)
        query.live_to_the_end()
        query.check_end()


class Life(NamedTuple):
    """A run of one of several queries that share a subscription by mistake.

    Attributes:
        checkpoint: The number of its checkpoint and sink.
        back: The number of its earlier runs that an older copy of the two undoes.
    """

    checkpoint: int
    back: int
    run: Run


LIVES = st.builds(
    Life,
    checkpoint=st.integers(0, 1),
    back=st.sampled_from([0, 0, 0, 1, 2]),
    run=RUNS,
)


def uneventful(checkpoint: int, dies_at: int) -> Life:
    """A life in which nothing happens until it is killed."""
    run = Run(dies_at, False, 0, "before", 0, 0, False, PrefetchMode.OFF)
    return Life(checkpoint, 0, run)


class Careless(Sink):
    """A sink that accepts each batch, also a different one with the same number."""

    def write(self, batch_id: int, rows: list[pa.RecordBatch]) -> None:
        self.batches[batch_id] = rows


class MixedUp(Query):
    """Queries that use one spool in turns."""

    def __init__(self, broker: Emulator, folder: Path, **settings: Any) -> None:
        super().__init__(broker, folder, [""], **settings)
        new: list[tuple[Checkpoint, Sink]] = [(Checkpoint(), Careless())]
        self._copies = [new, list(new)]
        self._committed: set[str] = set()

    def live_one(self, life: Life) -> None:
        copies = self._copies[life.checkpoint]
        del copies[max(len(copies) - life.back, 1) :]
        self.checkpoint, self.sink = copy.deepcopy(copies[-1])
        # The messages of the previous run are redelivered to this one.
        wait_until_unread(self.broker, SUBSCRIPTION)
        self.broker.clock.advance(LEASE)
        self.publish(3)
        try:
            self.live(life.run)
        except SpoolError:
            # Refused, because spool and checkpoint do not belong together.
            self.check_acks()
        copies.append((self.checkpoint, self.sink))

    def check_acks(self) -> None:
        """Check that each acknowledged message was committed by one of the queries."""
        self._committed.update(self.sink.column("message_id", self.checkpoint))
        assert acked(self.broker) <= self._committed


@examples(max_examples=40)
@given(
    count=st.integers(1, 9),
    batch=st.integers(1, 5),
    lives=st.lists(LIVES, min_size=2, max_size=7),
)
# The first checkpoint commits batch 1 and dies before the source knows. The second one discards
# that batch and writes another one. The first one must not take that for its batch 1.
@example(
    count=1,
    batch=2,
    lives=[uneventful(0, 1), uneventful(0, 17), uneventful(1, 6), uneventful(0, 4)],
)
# The same; the second one dies twice, and the first one lives long enough to acknowledge.
@example(
    count=1,
    batch=2,
    lives=[uneventful(0, 17), uneventful(1, 6), uneventful(1, 6), uneventful(0, 15)],
)
def test_simulated_ingest_sessions_with_two_checkpoints_ack_no_uncommitted_message(
    shared_broker: Emulator, count: int, batch: int, lives: list[Life]
) -> None:
    """Two checkpoints use a spool in turns, and older copies are restored."""
    shared_broker.reset()
    make_subscription(shared_broker)
    with tempfile.TemporaryDirectory() as folder:
        queries = MixedUp(shared_broker, Path(folder), max_messages_per_trigger=batch)
        queries.publish(count)
        for life in lives:
            queries.live_one(life)
