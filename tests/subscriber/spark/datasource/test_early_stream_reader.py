"""The reader for PySpark 4.0 and 4.1, called in the order that these versions have."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from pullstream.spark.datasource.early_stream_reader import EarlyStreamReader
from pullstream.spark.datasource.options import DRAINED, StreamOptions
from pullstream.spark.datasource.source import PubSubDataSource
from pullstream.spark.protocol.coordinator import START, Offset
from pullstream.spark.protocol.layout import Plan

pytestmark = pytest.mark.spark

GIVEN = {"subscription": "projects/p/subscriptions/sub", "spoolDir": "/spool"}


def at(plan: int) -> dict[str, Any]:
    return {"plan": plan, "chain": "c"} if plan else START._asdict()


class Session:
    """A session with plans up to `newest`; records its calls."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.calls: list[str] = []
        self.is_caught_up = False

    def prepare_available_now(self) -> None:
        self.calls.append("prepare")

    def latest(self, start: Offset) -> Offset:
        self.calls.append(f"latest {start.plan}")
        if start.plan == self.newest:
            self.is_caught_up = True
            return start
        return Offset(start.plan + 1, "c")

    def plan(self, start: Offset, end: Offset) -> Plan:
        self.calls.append(f"plan {start.plan} {end.plan}")
        return Plan(end.plan, 0, "", [])


def reader(session: Session, **options: str) -> EarlyStreamReader:
    made = EarlyStreamReader(
        StreamOptions.parse({**GIVEN, "proof": "table", **options}, files_are_shared=True)
    )
    made._session = session  # type: ignore[assignment]
    return made


def test_the_end_of_the_last_planned_batch_is_the_start_of_the_next_on_an_old_pyspark() -> None:
    """`tests/spark_matrix/recorded_calls.py` has the order of calls."""
    session = Session(newest=3)
    one = reader(session)
    assert one.latestOffset() == at(1)
    one.partitions(one.initialOffset(), at(1))
    assert one.latestOffset() == at(2)
    one.commit = lambda end: None  # type: ignore[method-assign]
    one.partitions(at(1), at(2))
    assert one.latestOffset() == at(3)
    assert session.calls == ["latest 0", "plan 0 1", "latest 1", "plan 1 2", "latest 2"]


def test_a_restart_of_an_old_pyspark_repeats_its_batch_and_continues_after_it() -> None:
    """The first call has the newest planned offset twice, and has no rows."""
    session = Session(newest=5)
    one = reader(session)
    assert one.partitions(at(4), at(4)) == []
    one.partitions(at(3), at(4))
    assert one.latestOffset() == at(5)
    assert session.calls == ["plan 3 4", "latest 4"]


def test_a_job_that_takes_what_there_is_ends_by_an_error_on_an_old_pyspark() -> None:
    """AvailableNow of these versions is one batch, whose end nobody reports."""
    session = Session(newest=1)
    one = reader(session, untilDrained="true")
    one.latestOffset()
    one.partitions(at(0), at(1))
    with pytest.raises(EOFError, match=DRAINED):
        one.latestOffset()
    assert session.calls == ["prepare", "latest 0", "plan 0 1", "latest 1"]


def test_a_query_without_an_end_waits_for_messages_on_an_old_pyspark() -> None:
    session = Session(newest=0)
    assert reader(session).latestOffset() == at(0)


@pytest.mark.parametrize("acknowledge", ["committed", "stored"])
def test_a_pipeline_on_an_old_pyspark_must_acknowledge_what_is_stored(
    monkeypatch: pytest.MonkeyPatch, acknowledge: str
) -> None:
    """The sentence names the ways out."""
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    source = PubSubDataSource(CaseInsensitiveDict({**GIVEN, "acknowledge": acknowledge}))
    found = source.streamReader(source.schema())
    if acknowledge == "stored":
        assert isinstance(found, EarlyStreamReader)
        return
    with pytest.raises(ValueError, match="'committed', which needs PySpark 4") as error:
        found.initialOffset()
    for way in ("'stored'", "pullstream ingest", "pip install 'pyspark>=4.2'"):
        assert way in str(error.value)
