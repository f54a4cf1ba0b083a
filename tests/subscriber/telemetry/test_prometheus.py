"""PrometheusHooks, tested by the page that Prometheus reads."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Mapping

import pytest
from freezegun import freeze_time
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pullstream.message import Message
from pullstream.statistics import Latency, PublisherStatistics
from pullstream.telemetry.prometheus import PrometheusHooks, PrometheusPublisherHooks
from pullstream_protocol.errors import Unavailable

from .source import OTHER, SUBSCRIPTION, Source, message

COUNTERS = {
    *("received", "redelivered", "acked", "nacked", "returned", "extended", "expired", "failed"),
    *("callback_errors", "reopened"),
}
GAUGES = {"leased", "leased_bytes", "held", "waiting", "running", "unanswered", "load"}


class Page:
    """A registry of one test, and the hooks that fill it."""

    def __init__(self, prefix: str = "pullstream") -> None:
        self.registry = CollectorRegistry()
        self.hooks = PrometheusHooks(self.registry, prefix)

    def value(self, name: str, subscription: str = SUBSCRIPTION, **labels: str) -> float | None:
        """Return a sample of the page, or None."""
        labels = {"subscription": subscription, **labels}
        for family in text_string_to_metric_families(generate_latest(self.registry).decode()):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        return None

    def types(self) -> Mapping[str, str]:
        """Return the type of each metric by name."""
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return {family.name: family.type for family in families}


@pytest.fixture
def page() -> Page:
    return Page()


def test_prometheus_exports_type_and_help_of_all_metrics_before_the_first_subscription(
    page: Page,
) -> None:
    """The names and their help are there from the first scrape on."""
    types = page.types()
    assert {name for name, kind in types.items() if kind == "counter"} == {
        f"pullstream_{name}" for name in COUNTERS
    }
    assert {name for name, kind in types.items() if kind == "gauge"} == {
        f"pullstream_{name}" for name in {*GAUGES, "state", "latency_seconds"}
    }
    assert types["pullstream_callback_seconds"] == "histogram"
    assert types["pullstream_request_seconds"] == "histogram"


@pytest.mark.parametrize("name", sorted(COUNTERS))
def test_prometheus_exports_each_count_of_the_subscription_statistics_as_a_counter(
    page: Page, name: str
) -> None:
    """Each counter of Statistics has a metric with its name."""
    page.hooks.subscribed(SUBSCRIPTION, Source(**{name: 7}))
    assert page.value(f"pullstream_{name}_total") == 7
    others = COUNTERS - {name}
    assert {page.value(f"pullstream_{other}_total") for other in others} == {0}


@pytest.mark.parametrize("name", sorted(GAUGES))
def test_prometheus_exports_each_level_of_the_subscription_statistics_as_a_gauge(
    page: Page, name: str
) -> None:
    """Each level of Statistics has a metric with its name."""
    page.hooks.subscribed(SUBSCRIPTION, Source(**{name: 0.5}))
    assert page.value(f"pullstream_{name}") == 0.5


def test_prometheus_exports_the_current_subscription_state_as_1_and_all_other_states_as_0(
    page: Page,
) -> None:
    """An alert on a state does not need to know numbers of states."""
    page.hooks.subscribed(SUBSCRIPTION, Source())
    states = ("connecting", "streaming", "reconnecting", "closing", "closed")
    values = [page.value("pullstream_state", state=state) for state in states]
    assert values == [0, 1, 0, 0, 0]


def test_prometheus_exports_three_latency_quantiles_of_subscriptions_in_seconds(page: Page) -> None:
    """The quantiles are in seconds, as in the statistics."""
    page.hooks.subscribed(SUBSCRIPTION, Source(latency=Latency(0.1, 0.2, 0.3)))
    values = [page.value("pullstream_latency_seconds", quantile=q) for q in ("0.5", "0.9", "0.99")]
    assert values == [0.1, 0.2, 0.3]


def test_prometheus_exports_counters_but_no_gauges_of_an_ended_subscription(page: Page) -> None:
    """Another subscription with the name continues the counters."""
    first, second = Source(acked=5, leased=1), Source(acked=2, leased=4)
    page.hooks.subscribed(SUBSCRIPTION, first)
    first.close(page.hooks)
    first.set(acked=1000)  # no longer read
    assert page.value("pullstream_acked_total") == 5
    assert page.value("pullstream_leased") is None
    assert page.value("pullstream_state", state="closed") is None
    assert page.value("pullstream_latency_seconds", quantile="0.99") is None
    page.hooks.subscribed(SUBSCRIPTION, second)
    assert page.value("pullstream_acked_total") == 7
    assert page.value("pullstream_leased") == 4


def test_one_prometheus_hooks_instance_exports_metrics_of_many_subscriptions(page: Page) -> None:
    """The full names distinguish the subscriptions."""
    page.hooks.subscribed(SUBSCRIPTION, Source(acked=1))
    page.hooks.subscribed(OTHER, Source(acked=2))
    assert page.value("pullstream_acked_total", SUBSCRIPTION) == 1
    assert page.value("pullstream_acked_total", OTHER) == 2


def test_prometheus_records_the_duration_of_callbacks_that_return_or_raise(page: Page) -> None:
    """The time ends with the callback: a quarter of a second and then a whole one."""
    with freeze_time("2030-01-01") as time:

        def handle(one: Message) -> None:
            time.tick(float(one.data))
            if one.data == b"1":
                raise ValueError("no")

        wrapped = page.hooks.wrap(SUBSCRIPTION, handle)
        wrapped(message(data=b"0.25"))
        with pytest.raises(ValueError, match="no"):
            wrapped(message(data=b"1"))
    assert page.value("pullstream_callback_seconds_count") == 2
    assert page.value("pullstream_callback_seconds_sum") == 1.25
    assert page.value("pullstream_callback_seconds_bucket", le="0.3") == 1
    assert page.value("pullstream_callback_seconds_bucket", le="1.0") == 2


def test_prometheus_records_the_duration_of_a_coroutine_callback_up_to_its_end(page: Page) -> None:
    """Creating the coroutine takes no time."""
    with freeze_time("2030-01-01") as time:

        async def handle(_: Message) -> None:
            time.tick(2)

        asyncio.run(page.hooks.wrap(SUBSCRIPTION, handle)(message()))
    assert page.value("pullstream_callback_seconds_sum") == 2


def test_prometheus_counts_the_callback_of_a_batch_of_messages_as_one_callback(page: Page) -> None:
    """The number of messages does not matter."""
    page.hooks.wrap(SUBSCRIPTION, lambda _: None)([message("1"), message("2")])
    assert page.value("pullstream_callback_seconds_count") == 1


def test_prometheus_records_request_durations_by_request_kind_and_status_code(page: Page) -> None:
    """A failure has the name of its gRPC status code, and success is OK."""
    page.hooks.request_done(SUBSCRIPTION, "acknowledge", 10, 0.25, None)
    page.hooks.request_done(SUBSCRIPTION, "acknowledge", 10, 0.5, None)
    page.hooks.request_done(SUBSCRIPTION, "modify_ack_deadline", 1, 3.0, Unavailable("gone"))
    name = "pullstream_request_seconds_sum"
    assert page.value(name, kind="acknowledge", code="OK") == 0.75
    assert page.value(name, kind="modify_ack_deadline", code="UNAVAILABLE") == 3.0
    assert page.value(name, kind="modify_ack_deadline", code="OK") is None


def test_the_configured_prefix_begins_every_prometheus_metric_name() -> None:
    """A prefix allows two adapters in one registry, or a naming rule of the user."""
    page = Page(prefix="shop_pubsub")
    page.hooks.subscribed(SUBSCRIPTION, Source(acked=1))
    assert {name.removeprefix("shop_pubsub") != name for name in page.types()} == {True}
    assert page.value("shop_pubsub_acked_total") == 1


def test_a_second_prometheus_hooks_instance_for_the_same_registry_raises_an_error(
    page: Page,
) -> None:
    """The first instance continues unchanged."""
    page.hooks.subscribed(SUBSCRIPTION, Source(acked=1))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        PrometheusHooks(page.registry)
    assert page.value("pullstream_acked_total") == 1
    PrometheusHooks(page.registry, prefix="another")


def test_a_prometheus_scrape_can_be_limited_to_some_metric_names(page: Page) -> None:
    """Prometheus does this with `name[]=`. The registry knows the names from the beginning."""
    page.hooks.subscribed(SUBSCRIPTION, Source(acked=1))
    some = page.registry.restricted_registry(["pullstream_acked_total"])
    text = generate_latest(some).decode()
    assert "pullstream_acked_total{" in text
    assert "pullstream_received_total{" not in text


# ---- publishers --------------------------------------------------------------------------------

ORDERS = "projects/p/topics/orders"


def test_prometheus_exports_messages_attempts_and_load_of_publisher_clients() -> None:
    """Messages by topic, attempts by code, and the load of all clients."""
    page = Page()
    hooks = PrometheusPublisherHooks(page.registry)
    for waiting in (2, 3):
        hooks.started(lambda waiting=waiting: PublisherStatistics(waiting=waiting, in_flight=1))  # type: ignore[misc]
    hooks.request_done(ORDERS, 5, 100, 0.01, Unavailable("away"))
    hooks.request_done(ORDERS, 5, 100, 0.01, None)
    hooks.request_done(ORDERS, 5, 100, 0.01, ValueError("closed"))
    hooks.published(ORDERS, 5, 0.2)
    hooks.failed(ORDERS, 2, Unavailable("away"))
    text = generate_latest(page.registry).decode()
    for line in (
        f'pullstream_publisher_published_total{{topic="{ORDERS}"}} 5.0',
        f'pullstream_publisher_failed_total{{topic="{ORDERS}"}} 2.0',
        f'pullstream_publisher_request_bytes_total{{topic="{ORDERS}"}} 300.0',
        f'pullstream_publisher_publish_seconds_sum{{topic="{ORDERS}"}} 0.2',
        f'pullstream_publisher_request_seconds_count{{code="UNAVAILABLE",topic="{ORDERS}"}} 1.0',
        f'pullstream_publisher_request_seconds_count{{code="OK",topic="{ORDERS}"}} 1.0',
        f'pullstream_publisher_request_seconds_count{{code="UNKNOWN",topic="{ORDERS}"}} 1.0',
        "pullstream_publisher_waiting 5.0",
        "pullstream_publisher_in_flight 2.0",
    ):
        assert line in text


def test_prometheus_hooks_keep_no_reference_to_a_publisher() -> None:
    """A program that creates a client for each task would otherwise keep all of them."""

    class Client:
        def statistics(self) -> PublisherStatistics:
            return PublisherStatistics(waiting=2)

    page = Page()
    hooks = PrometheusPublisherHooks(page.registry)
    kept, other = Client(), Client()
    hooks.started(kept.statistics)
    hooks.started(other.statistics)
    assert "pullstream_publisher_waiting 4.0" in generate_latest(page.registry).decode()
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    assert "pullstream_publisher_waiting 2.0" in generate_latest(page.registry).decode()
