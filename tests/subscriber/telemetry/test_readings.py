"""Statistics of many subscriptions by name: counters never fall, gauges cover active ones."""

from __future__ import annotations

from dataclasses import fields

from pullstream.hooks import Hooks, StateChange
from pullstream.runtime.lifecycle import SubscriptionState
from pullstream.statistics import Latency, Statistics
from pullstream.telemetry.readings import COUNTERS, GAUGES, Reading, Readings

from .source import OTHER, SUBSCRIPTION, Source


class Ending(Hooks):
    """Reports the end of a subscription as the adapters do."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def state_changed(self, subscription: str, change: StateChange) -> None:
        self._readings.end(subscription)


def only(readings: Readings) -> Reading:
    (reading,) = readings.read()
    return reading


def test_every_field_of_the_subscription_statistics_is_exported_as_a_metric() -> None:
    """A field that is in Statistics but not in the tables would never be exported."""
    exported = {metric.field for metric in (*COUNTERS, *GAUGES)}
    assert exported | {"state", "since", "latency", "streams"} == {
        field.name for field in fields(Statistics)
    }


def test_telemetry_metrics_report_the_statistics_of_a_subscription_at_the_collection_time() -> None:
    """A reading has the statistics of that moment."""
    readings, source = Readings(), Source(received=3, running=2, load=0.25)
    readings.begin(SUBSCRIPTION, source)
    before = only(readings)
    source.set(received=5, running=0)
    after = only(readings)
    assert (before.subscription, after.subscription) == (SUBSCRIPTION, SUBSCRIPTION)
    assert (before.counters["received"], after.counters["received"]) == (3, 5)
    assert (before.gauges["running"], after.gauges["running"]) == (2, 0)
    assert before.gauges["load"] == 0.25


def test_telemetry_metrics_of_an_ended_subscription_contain_only_its_counters() -> None:
    """The subscription is not asked again, so it can be freed."""
    readings, source = Readings(), Source(received=3, leased=1)
    readings.begin(SUBSCRIPTION, source)
    source.close(Ending(readings))
    source.set(received=1000)
    assert only(readings) == Reading(SUBSCRIPTION, only(readings).counters, {}, {}, {})
    assert only(readings).counters["received"] == 3


def test_a_subscription_with_the_name_of_an_ended_one_continues_the_telemetry_counters() -> None:
    """The counters of the name continue, although each subscription counts from 0."""
    readings, first, second = Readings(), Source(received=3), Source(received=0)
    readings.begin(SUBSCRIPTION, first)
    first.close(Ending(readings))
    readings.begin(SUBSCRIPTION, second)
    assert only(readings).counters["received"] == 3
    second.set(received=4)
    assert only(readings).counters["received"] == 7
    second.close(Ending(readings))
    assert only(readings).counters["received"] == 7


def test_telemetry_metrics_contain_no_gauges_of_a_closed_subscription() -> None:
    """The counters are the same before and after the report of the end."""
    readings, source = Readings(), Source(received=3, leased=1)
    readings.begin(SUBSCRIPTION, source)
    source.set(state=SubscriptionState.CLOSED)
    before = only(readings)
    readings.end(SUBSCRIPTION)
    assert before == only(readings)
    assert (before.counters["received"], before.gauges) == (3, {})


def test_telemetry_metrics_merge_two_running_subscriptions_with_the_same_name() -> None:
    """Counters and gauges are added. For load and latency, the worse value counts."""
    readings = Readings()
    slow = Source(acked=1, waiting=2, load=0.25, latency=Latency(0.1, 0.2, 9.0))
    full = Source(acked=10, waiting=20, load=1.0, latency=Latency(0.2, 0.3, 0.4))
    readings.begin(SUBSCRIPTION, slow)
    readings.begin(SUBSCRIPTION, full)
    both = only(readings)
    assert (both.counters["acked"], both.gauges["waiting"], both.gauges["load"]) == (11, 22, 1.0)
    assert both.latency == {"0.5": 0.2, "0.9": 0.3, "0.99": 9.0}
    assert both.states["streaming"] == 2
    assert both.states.keys() == {state.value for state in SubscriptionState}
    full.close(Ending(readings))
    rest = only(readings)
    assert (rest.counters["acked"], rest.gauges["waiting"], rest.gauges["load"]) == (11, 2, 0.25)
    assert rest.states["streaming"] == 1


def test_telemetry_metrics_distinguish_subscriptions_with_different_names() -> None:
    """The end of one subscription does not affect another name."""
    readings, one, other = Readings(), Source(acked=1), Source(acked=2)
    readings.begin(SUBSCRIPTION, one)
    readings.begin(OTHER, other)
    one.close(Ending(readings))
    assert {reading.subscription: reading.counters["acked"] for reading in readings.read()} == {
        SUBSCRIPTION: 1,
        OTHER: 2,
    }
    assert [bool(reading.gauges) for reading in readings.read()] == [False, True]


def test_telemetry_ignores_the_reported_end_of_a_subscription_that_it_does_not_know() -> None:
    """Without a reported begin there is nothing to keep."""
    readings = Readings()
    readings.end(SUBSCRIPTION)
    assert readings.read() == []
