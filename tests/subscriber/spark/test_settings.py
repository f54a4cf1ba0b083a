"""Settings are complete and valid, or an error names the wrong one."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from pullstream.spark.settings import MAX_BATCH_BYTES, IngestSettings
from pullstream.streaming.lease_table import LeaseTable
from tests.subscriber.spark.receiving.messages import batch

NAME = "projects/p/subscriptions/name"


def settings(**changes: Any) -> IngestSettings:
    return IngestSettings(**{"subscription": NAME, "spool_dir": Path("spool"), **changes})


def test_a_short_subscription_name_in_ingest_settings_is_completed_with_the_project(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The project is an argument or comes from the environment. A full name needs none."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "environment")
    assert settings(project="other").subscription == NAME
    assert settings(subscription="name", project="p").subscription == NAME
    assert settings(subscription="name").subscription == "projects/environment/subscriptions/name"


@pytest.mark.parametrize("name", ["", "name", "projects/p/topics/name", "projects/p/subscriptions"])
def test_ingest_settings_refuse_a_short_subscription_name_without_a_project(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invalid names are refused as well, and the error shows the form."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with pytest.raises(ValueError, match=r"subscription is .*projects/PROJECT/subscriptions/"):
        settings(subscription=name)


def test_ingest_settings_state_the_rule_of_ids_that_a_short_id_breaks() -> None:
    """The form of the full name is right."""
    with pytest.raises(ValueError, match="an id has 3 to 255 characters"):
        settings(subscription="projects/p/subscriptions/x")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("max_messages_per_trigger", 0, ValueError),
        ("max_messages_per_trigger", 1.5, TypeError),
        ("max_bytes_per_trigger", -1, ValueError),
        ("max_bytes_per_trigger", MAX_BATCH_BYTES + 1, ValueError),
        ("max_outstanding_messages", True, TypeError),
        ("max_outstanding_messages", 19_999, ValueError),
        ("max_outstanding_bytes", 0, ValueError),
        ("max_outstanding_bytes", 2 * 64 * 2**20 - 1, ValueError),
        ("dedup_messages", 0, ValueError),
        ("max_spool_bytes", 0, ValueError),
        ("linger", -0.1, ValueError),
        ("idle_wait", math.inf, ValueError),
        ("drain_wait", math.nan, ValueError),
        # Every subscription would seem empty.
        ("drain_wait", 0, ValueError),
        ("drain_wait", 0.099, ValueError),
        ("dedup_window", -1, ValueError),
        ("lease_seconds", 9, ValueError),
        ("lease_seconds", 601, ValueError),
    ],
)
def test_invalid_ingest_settings_are_refused_with_an_error_that_shows_the_value(
    name: str, value: Any, error: type[Exception]
) -> None:
    """The error has the given value."""
    with pytest.raises(error, match=f"{name} is {value!r}"):
        settings(**{name: value})


def test_ingest_flow_control_admits_three_batches_and_extends_leases_until_the_commit() -> None:
    """The test reads the defaults. A lease lasts until its commit, however late that is."""
    limits = settings(max_messages_per_trigger=500, max_bytes_per_trigger=7).flow_control.checked()
    assert (limits.max_messages, limits.max_bytes) == (1500, 21)
    assert limits.max_lease_duration == math.inf
    given = settings(
        max_outstanding_messages=20_000,
        max_bytes_per_trigger=7,
        max_outstanding_bytes=14,
        lease_seconds=30,
    )
    assert given.flow_control[:2] == (14, 20_000)
    assert given.flow_control[3:5] == (30, 30)


def test_flow_control_of_a_spark_batch_read_admits_only_the_messages_of_one_batch() -> None:
    """Other messages would be returned, which counts as a delivery attempt."""
    limits = settings(
        max_messages_per_trigger=500, max_bytes_per_trigger=7, is_single=True
    ).flow_control.checked()
    assert (limits.max_messages, limits.max_bytes) == (500, 7)


def test_a_spark_batch_read_knows_acknowledged_messages_for_four_leases_at_least() -> None:
    """A message may come again until its lease has ended, and is then left out."""
    settings(dedup_window=2400.0, lease_seconds=600, is_single=True)
    with pytest.raises(ValueError, match="dedup_window must be at least four times lease_seconds"):
        settings(dedup_window=2399.0, lease_seconds=600, is_single=True)


def test_leases_of_an_ingest_batch_are_extended_however_long_the_batch_takes() -> None:
    """Each extension has the configured length, even for days."""
    leases = LeaseTable(settings(lease_seconds=30).flow_control)
    (message,) = batch(["a"])
    leases.add_leases(message.batch, [message], 0.0)
    for now in range(0, 10 * 86_400, 3600):
        work = leases.due(float(now) + 3600)
        assert (work.extend, work.seconds, work.given_up) == (["a/1"], 30, [])


def test_ingest_settings_are_equal_after_pickling_and_unpickling() -> None:
    """The values are the same in another process."""
    one = settings(spool_dir="folder")
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.spool_dir == "folder"
