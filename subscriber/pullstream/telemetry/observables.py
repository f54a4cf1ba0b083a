"""The statistics of subscriptions as OpenTelemetry's observable instruments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from .conventions import of_subscription
from .readings import COUNTERS, GAUGES, LATENCY, STATE, Reading, Readings

Values = Callable[[Reading], Mapping[str, float]]


def create_observables(meter: Meter, prefix: str, readings: Readings) -> None:
    """Create instruments that read `readings` at each collection, named `prefix`.received etc."""
    for metric in COUNTERS:
        meter.create_observable_counter(
            f"{prefix}.{metric.field}",
            [partial(_one, readings, lambda reading: reading.counters, metric.field)],
            metric.unit,
            metric.description,
        )
    for metric in GAUGES:
        meter.create_observable_gauge(
            f"{prefix}.{metric.field}",
            [partial(_one, readings, lambda reading: reading.gauges, metric.field)],
            metric.unit,
            metric.description,
        )
    states = partial(_each, readings, lambda reading: reading.states, "state")
    meter.create_observable_gauge(f"{prefix}.state", [states], "{subscription}", STATE)
    latency = partial(_each, readings, lambda reading: reading.latency, "quantile")
    meter.create_observable_gauge(f"{prefix}.latency", [latency], "s", LATENCY)


def _one(
    readings: Readings, values: Values, field: str, _: CallbackOptions
) -> Iterator[Observation]:
    for reading in readings.read():
        value = values(reading).get(field)
        if value is not None:
            yield Observation(value, of_subscription(reading.subscription))


def _each(
    readings: Readings, values: Values, attribute: str, _: CallbackOptions
) -> Iterator[Observation]:
    for reading in readings.read():
        of_all = of_subscription(reading.subscription)
        for key, value in values(reading).items():
            yield Observation(value, {**of_all, attribute: key})
