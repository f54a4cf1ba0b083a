"""Settings are whole and sensible, or an error that says which is not."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from subscriber.spark.settings import MAX_BATCH_BYTES, IngestSettings
from subscriber.streaming.lease_table import LeaseTable
from tests.spark.core.messages import batch

NAME = "projects/p/subscriptions/name"


def settings(**changes: Any) -> IngestSettings:
    return IngestSettings(**{"subscription": NAME, "spool_dir": Path("spool"), **changes})


def test_a_short_name_is_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is given, or the environment's; a full name needs none."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "environment")
    assert settings(project="other").subscription == NAME
    assert settings(subscription="name", project="p").subscription == NAME
    assert settings(subscription="name").subscription == "projects/environment/subscriptions/name"


@pytest.mark.parametrize("name", ["", "name", "projects/p/topics/name", "projects/p/subscriptions"])
def test_a_name_without_a_project_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is what is no subscription; the error shows the form."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with pytest.raises(ValueError, match=r"subscription is .*projects/PROJECT/subscriptions/"):
        settings(subscription=name)


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
        # All would seem to be empty.
        ("drain_wait", 0, ValueError),
        ("drain_wait", 0.099, ValueError),
        ("dedup_window", -1, ValueError),
        ("lease_seconds", 9, ValueError),
        ("lease_seconds", 601, ValueError),
    ],
)
def test_what_makes_no_sense_is_named(name: str, value: Any, error: type[Exception]) -> None:
    """With the value that was given."""
    with pytest.raises(error, match=f"{name} is {value!r}"):
        settings(**{name: value})


def test_flow_control_lets_three_batches_in_and_leases_last() -> None:
    """Unless the user says otherwise; a lease ends with its commit, however late that is."""
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
    assert given.flow_control[3:] == (30, 30)


def test_a_single_batch_is_all_that_is_let_in() -> None:
    """What comes with it in vain would be given back, which counts as an attempt to deliver it."""
    limits = settings(
        max_messages_per_trigger=500, max_bytes_per_trigger=7, is_single=True
    ).flow_control.checked()
    assert (limits.max_messages, limits.max_bytes) == (500, 7)


def test_a_lease_is_extended_however_long_its_batch_takes() -> None:
    """Each time by as much as the settings say, for days."""
    leases = LeaseTable(settings(lease_seconds=30).flow_control)
    (message,) = batch(["a"])
    leases.add(message.batch, [message], 0.0)
    for now in range(0, 10 * 86_400, 3600):
        work = leases.due(float(now) + 3600)
        assert (work.extend, work.seconds, work.given_up) == (["a/1"], 30, [])


def test_settings_travel() -> None:
    """Between processes, unchanged."""
    one = settings(spool_dir="folder")
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.spool_dir == Path("folder")
