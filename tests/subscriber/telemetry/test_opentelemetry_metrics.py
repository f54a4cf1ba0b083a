"""The metrics of OpenTelemetryHooks, and the names of the conventions."""

from __future__ import annotations

import pytest
from freezegun import freeze_time
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes

from pullstream.message import Message
from pullstream.statistics import Latency
from pullstream.telemetry import conventions
from pullstream.telemetry.opentelemetry import OpenTelemetryHooks
from pullstream_protocol.errors import Unavailable

from .recorder import Recorder, attributes
from .source import OTHER, SUBSCRIPTION, Source, message

PROJECT = "gcp.project_id"
OF_SUBSCRIPTION = {
    "messaging.system": "gcp_pubsub",
    "messaging.destination.name": "orders",
    "messaging.destination.subscription.name": "orders",
    PROJECT: "p",
}
COUNTERS = {
    *("received", "redelivered", "acked", "nacked", "returned", "extended", "expired", "failed"),
    *("callback_errors", "reopened"),
}
GAUGES = {"leased", "leased_bytes", "held", "waiting", "running", "unanswered", "load"}


def test_opentelemetry_attribute_and_metric_names_follow_the_semantic_conventions() -> None:
    """Each name beginning with messaging. or error. is in the installed package."""
    ours = {
        value
        for name, value in vars(conventions).items()
        if name.isupper() and isinstance(value, str) and value.startswith(("messaging.", "error."))
    }
    theirs = {
        value
        for module in (messaging_attributes, messaging_metrics, error_attributes)
        for name, value in vars(module).items()
        if name.isupper()
    }
    assert len(ours) == 14
    assert ours - theirs == set()
    systems = {value.value for value in messaging_attributes.MessagingSystemValues}
    operations = {value.value for value in messaging_attributes.MessagingOperationTypeValues}
    assert conventions.GCP_PUBSUB in systems
    assert {conventions.PROCESS, conventions.SETTLE} <= operations


def test_opentelemetry_metrics_record_the_duration_of_a_callback_and_count_its_message(
    recorder: Recorder,
) -> None:
    """The duration is in seconds, and names and units are those of the conventions."""
    with freeze_time("2030-01-01") as time:
        recorder.hooks.wrap(SUBSCRIPTION, lambda _: time.tick(0.25))(message())
    (timed,) = recorder.points("messaging.process.duration")
    assert (timed.sum, timed.count) == (0.25, 1)
    assert attributes(timed) == {**OF_SUBSCRIPTION, "messaging.operation.name": "process"}
    assert timed.explicit_bounds[:2] == (0.005, 0.01)
    (counted,) = recorder.points("messaging.client.consumed.messages")
    assert (counted.value, attributes(counted)) == (1, attributes(timed))
    metrics = recorder.metrics()
    assert metrics["messaging.process.duration"].unit == "s"
    assert metrics["messaging.client.consumed.messages"].unit == "{message}"


def test_opentelemetry_metrics_of_a_callback_that_raised_have_the_error_type(
    recorder: Recorder,
) -> None:
    """The count has the type of the error."""

    def fail(_: Message) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        recorder.hooks.wrap(SUBSCRIPTION, fail)(message())
    recorder.hooks.wrap(SUBSCRIPTION, lambda _: None)(message())
    expected = {None: 1, "ValueError": 1}
    assert recorder.values("messaging.client.consumed.messages", "error.type") == expected
    points = recorder.points("messaging.process.duration")
    assert {point.attributes.get("error.type"): point.count for point in points} == expected


def test_opentelemetry_metrics_count_every_message_of_a_batch_and_one_callback_duration(
    recorder: Recorder,
) -> None:
    """Two messages have one duration, even if the callback empties its list."""
    batch = [message("1"), message("2")]
    recorder.hooks.wrap(SUBSCRIPTION, lambda _: batch.clear())(batch)
    (consumed,) = recorder.points("messaging.client.consumed.messages")
    (timed,) = recorder.points("messaging.process.duration")
    assert (consumed.value, timed.count) == (2, 1)


def test_opentelemetry_metrics_record_request_durations_by_operation_and_error_type(
    recorder: Recorder,
) -> None:
    """The attributes are those of their spans."""
    recorder.hooks.request_done(SUBSCRIPTION, "acknowledge", 10, 0.25, None)
    recorder.hooks.request_done(SUBSCRIPTION, "acknowledge", 10, 0.5, Unavailable("later"))
    recorder.hooks.request_done(SUBSCRIPTION, "modify_ack_deadline", 10, 2.0, None)
    ack = {"messaging.operation.name": "ack", "messaging.operation.type": "settle"}
    timed = [
        (point.sum, attributes(point))
        for point in recorder.points("messaging.client.operation.duration")
    ]
    assert timed == [
        (0.25, {**OF_SUBSCRIPTION, **ack}),
        (0.5, {**OF_SUBSCRIPTION, **ack, "error.type": "UNAVAILABLE"}),
        (2.0, {**OF_SUBSCRIPTION, "messaging.operation.name": "modack"}),
    ]


@pytest.mark.parametrize("name", sorted(COUNTERS | GAUGES))
def test_opentelemetry_exports_each_field_of_the_subscription_statistics_as_a_metric(
    recorder: Recorder, name: str
) -> None:
    """Counters are monotonic sums, levels are gauges, and each has its own value."""
    recorder.hooks.subscribed(SUBSCRIPTION, Source(**{name: 7}))
    metric = recorder.metrics()[f"pullstream.{name}"]
    (point,) = recorder.points(f"pullstream.{name}")
    assert (point.value, attributes(point)) == (7, OF_SUBSCRIPTION)
    assert getattr(metric.data, "is_monotonic", False) == (name in COUNTERS)
    others = (COUNTERS | GAUGES) - {name}
    assert {recorder.points(f"pullstream.{other}")[0].value for other in others} == {0}


def test_opentelemetry_exports_one_value_per_subscription_state_and_per_latency_quantile(
    recorder: Recorder,
) -> None:
    """The current state is 1, and each quantile is in seconds."""
    recorder.hooks.subscribed(SUBSCRIPTION, Source(latency=Latency(0.1, 0.2, 0.3)))
    assert recorder.values("pullstream.state", "state") == {
        "connecting": 0,
        "streaming": 1,
        "reconnecting": 0,
        "closing": 0,
        "closed": 0,
    }
    quantiles = {"0.5": 0.1, "0.9": 0.2, "0.99": 0.3}
    assert recorder.values("pullstream.latency", "quantile") == quantiles


def test_opentelemetry_exports_counters_but_no_gauges_of_an_ended_subscription(
    recorder: Recorder,
) -> None:
    """Another subscription with the name continues the counters."""
    first, second = Source(acked=5, leased=1), Source(acked=2, leased=4)
    recorder.hooks.subscribed(SUBSCRIPTION, first)
    first.close(recorder.hooks)
    first.set(acked=1000)  # no longer read
    assert recorder.values("pullstream.acked", PROJECT) == {"p": 5}
    for name in ("leased", "state", "latency"):
        assert recorder.points(f"pullstream.{name}") == []
    recorder.hooks.subscribed(SUBSCRIPTION, second)
    assert recorder.values("pullstream.acked", PROJECT) == {"p": 7}
    assert recorder.values("pullstream.leased", PROJECT) == {"p": 4}


def test_opentelemetry_metrics_distinguish_subscriptions_with_one_id_in_two_projects(
    recorder: Recorder,
) -> None:
    """The project distinguishes them, for which the conventions have no name."""
    recorder.hooks.subscribed(SUBSCRIPTION, Source(acked=1))
    recorder.hooks.subscribed(OTHER, Source(acked=2))
    assert recorder.values("pullstream.acked", PROJECT) == {"p": 1, "q": 2}


def test_opentelemetry_hooks_without_an_opentelemetry_sdk_raise_no_error() -> None:
    """A library may use the hooks before the application has set up OpenTelemetry."""
    hooks = OpenTelemetryHooks()
    hooks.subscribed(SUBSCRIPTION, Source())
    assert hooks.wrap(SUBSCRIPTION, lambda one: one.message_id)(message("7")) == "7"
    hooks.request_done(SUBSCRIPTION, "acknowledge", 1, 0.1, None)
