"""The oldest PySpark for each use."""

from __future__ import annotations

import re

import pyspark
import pytest
from pyspark.sql.types import StructType

from pullstream.spark import IngestJob, run_ingest
from pullstream.spark.datasource.source import PubSubDataSource
from pullstream.spark.errors import FailureCause, IngestError
from pullstream.spark.local import session_builder
from pullstream.spark.pyspark_version import LEAST, require_pyspark
from tests.subscriber.command_line import pullstream


@pytest.mark.parametrize("version", ["4.0.0", "4.2.1", "4.10.0.dev1", "5.0.0"])
def test_pyspark_of_a_supported_version_is_accepted(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers are compared as numbers."""
    monkeypatch.setattr(pyspark, "__version__", version)
    require_pyspark(LEAST, "a stream")


def test_an_ingestion_job_on_an_old_pyspark_ends_with_one_sentence_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sentence names both versions and the command that helps."""
    monkeypatch.setattr(pyspark, "__version__", "3.5.7")
    text = "an ingestion job needs PySpark 4.0 or later, and this is 3.5.7; pip install"
    with pytest.raises(IngestError, match=re.escape(text)) as caught:
        run_ingest(IngestJob(subscription="projects/p/subscriptions/s", to="/nowhere"))
    assert caught.value.cause is FailureCause.SPARK


def test_the_ingest_command_on_an_old_pyspark_ends_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The start of a session takes seconds."""
    monkeypatch.setattr(pyspark, "__version__", "3.5.7")
    monkeypatch.setattr(session_builder, "session_for", _no_session)
    name = "projects/p/subscriptions/s"
    result = pullstream("ingest", "--subscription", name, "--to", "/nowhere", "--json")
    assert result.code == 6
    assert result.objects[-1]["cause"] == "Spark"
    assert "needs PySpark 4.0 or later, and this is 3.5.7" in result.objects[-1]["error"]


def test_the_sink_on_pyspark_4_0_is_refused_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark 4.0 has no writers of columns."""
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    source = PubSubDataSource({})
    text = "the sink needs PySpark 4.1 or later, and this is 4.0.5"
    with pytest.raises(IngestError, match=text):
        source.writer(StructType(), overwrite=False)
    with pytest.raises(IngestError, match=text):
        source.streamWriter(StructType(), overwrite=False)


def _no_session(*arguments: object, **others: object) -> None:
    raise AssertionError("Spark must not be started")
