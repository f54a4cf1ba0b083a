"""The oldest PySpark for each use."""

from __future__ import annotations

import re

import pyspark
import pytest

from pullstream.spark import IngestJob, local_session, run_ingest
from pullstream.spark.errors import FailureCause, IngestError
from pullstream.spark.pyspark_version import STREAMS, require_pyspark


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.10.0.dev1", "5.0.0"])
def test_pyspark_of_a_supported_version_is_accepted(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers are compared as numbers."""
    monkeypatch.setattr(pyspark, "__version__", version)
    require_pyspark(STREAMS, "a stream")


def test_an_ingestion_job_on_an_old_pyspark_ends_with_one_sentence_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sentence names both versions and the command that helps."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    text = "an ingestion job needs PySpark 4.2 or later, and this is 4.1.4; pip install"
    with pytest.raises(IngestError, match=re.escape(text)) as caught:
        run_ingest(IngestJob(subscription="projects/p/subscriptions/s", to="/nowhere"))
    assert caught.value.cause is FailureCause.SPARK


def test_a_local_session_on_a_very_old_pyspark_ends_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark 4.0 would refuse to register the data source."""
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    with pytest.raises(IngestError, match=r"a session needs PySpark 4\.1 or later, and this is"):
        local_session()
