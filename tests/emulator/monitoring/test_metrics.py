"""Metrics, status and probes of a running broker over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.version import VERSION
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.rest_client import RestClient

pytestmark = pytest.mark.emulator(rest=True)

LABELS = (("project", "test"), ("subscription", "billing"), ("topic", "orders"))
OTHER = "projects/other/topics/news"


def topics_of(emulator: Emulator) -> TopicAdminClient:
    return TopicAdminClient(endpoint=emulator.endpoint)


def subscriptions_of(emulator: Emulator) -> SubscriberClient:
    return SubscriberClient(endpoint=emulator.endpoint)


def samples(rest: RestClient, token: str = "") -> dict[str, dict[Any, float]]:
    """Return the values of each metric by its labels, as Prometheus parses them."""
    status, kind, text = rest.raw("GET", "/metrics", Authorization=f"Bearer {token}")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found: dict[str, dict[Any, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def value(rest: RestClient, name: str) -> float:
    """Return the value of a metric of the subscription."""
    return samples(rest)[f"pullstream_broker_{name}"][LABELS]


def test_broker_metrics_count_messages_by_outcome(emulator: Emulator, clock: ManualClock) -> None:
    """Each outcome has a counter, and gauges show the present state."""
    rest = RestClient(emulator.endpoint)
    with topics_of(emulator) as topics, subscriptions_of(emulator) as subscriptions:
        topics.create_topic(name=TOPIC)
        subscriptions.create_subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=10)
        topics.publish(TOPIC, [{"data": b"x"}] * 5)
        clock.advance(7)
        pulled = subscriptions.pull(subscription=SUBSCRIPTION, max_messages=4)
        acked, nacked, extended, _ = [each.ack_id for each in pulled.received_messages]
        subscriptions.acknowledge(subscription=SUBSCRIPTION, ack_ids=[acked])
        for ack_id, seconds in ((nacked, 0), (extended, 60)):
            subscriptions.modify_ack_deadline(
                subscription=SUBSCRIPTION, ack_ids=[ack_id], ack_deadline_seconds=seconds
            )
        topic = (("project", "test"), ("topic", "orders"))
        found = samples(rest)
        assert found["pullstream_broker_published_messages_total"] == {topic: 5}
        assert found["pullstream_broker_published_bytes_total"][topic] > 5
        assert value(rest, "delivered_messages_total") == 4
        assert value(rest, "acknowledged_messages_total") == 1
        assert value(rest, "nacked_messages_total") == 1
        assert value(rest, "extended_leases_total") == 1
        assert value(rest, "backlog_messages") == 4
        assert value(rest, "leased_messages") == 2
        assert value(rest, "oldest_unacked_seconds") == 7
        emulator.inspect(lambda engine: engine.expire(SUBSCRIPTION))
        assert value(rest, "expired_leases_total") == 2
        assert found["pullstream_broker_info"] == {(("version", VERSION),): 1}
        assert found["pullstream_broker_ready"] == {(): 1}
        assert found["pullstream_broker_stored_bytes"][()] > 0
        assert "pullstream_broker_storage_bytes" not in found
        assert (("le", "+Inf"),) in found["pullstream_broker_event_loop_delay_seconds_bucket"]
        assert found["process_open_fds"][()] > 0
        subscriptions.delete_subscription(subscription=SUBSCRIPTION)
        assert samples(rest).get("pullstream_broker_delivered_messages_total") is None


def test_broker_metrics_count_dead_letters_per_source_subscription(emulator: Emulator) -> None:
    """The counter belongs to the subscription whose messages failed."""
    rest = RestClient(emulator.endpoint)
    with topics_of(emulator) as topics, subscriptions_of(emulator) as subscriptions:
        topics.create_topic(name=TOPIC)
        topics.create_topic(name=f"{PROJECT}/topics/dead")
        policy = {"dead_letter_topic": f"{PROJECT}/topics/dead", "max_delivery_attempts": 5}
        subscriptions.create_subscription(
            {"name": SUBSCRIPTION, "topic": TOPIC, "dead_letter_policy": policy}
        )
        topics.publish(TOPIC, [{"data": b"a"}])
        for _ in range(5):
            subscriptions.pull(subscription=SUBSCRIPTION, max_messages=1)
            emulator.inspect(lambda engine: engine.expire(SUBSCRIPTION))
        assert value(rest, "dead_lettered_messages_total") == 1
        (status,) = rest.ok("GET", "/v0/status")["subscriptions"]
        assert status["deadLetterTopic"] == f"{PROJECT}/topics/dead"
        assert (status["deadLettered"], status["expired"], status["backlog"]) == (1, 5, 0)


def test_the_broker_status_over_http_lists_topics_and_subscriptions(
    rest: RestClient, emulator: Emulator, clock: ManualClock
) -> None:
    """The names are in order, and may be limited to a project."""
    with topics_of(emulator) as topics, subscriptions_of(emulator) as subscriptions:
        for topic in (TOPIC, OTHER):
            topics.create_topic(name=topic)
        subscriptions.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
        topics.publish(TOPIC, [{"data": b"a"}, {"data": b"b"}])
    clock.advance(3)
    content = rest.ok("GET", "/v0/status")
    assert content["broker"]["version"] == VERSION
    assert content["broker"]["ready"] is True
    assert [each["name"] for each in content["topics"]] == [OTHER, TOPIC]
    assert content["topics"][1] == {
        "name": TOPIC,
        "subscriptions": [SUBSCRIPTION],
        "published": 2,
        "publishedBytes": content["topics"][1]["publishedBytes"],
    }
    (subscription,) = content["subscriptions"]
    assert subscription["topic"] == TOPIC
    assert (subscription["backlog"], subscription["oldestUnackedSeconds"]) == (2, 3)
    content = rest.ok("GET", "/v0/status?project=other")
    assert [each["name"] for each in content["topics"]] == [OTHER]
    assert content["subscriptions"] == []


def test_broker_metrics_and_status_show_only_projects_that_the_caller_may_access(
    clock: ManualClock,
) -> None:
    """Metrics and status need a token; probes do not."""
    access = Access({"all": Principal("root"), "ci": Principal("ci", frozenset({"test"}))})
    with Emulator(clock=clock, rest=True, access=access) as emulator:
        rest = RestClient(emulator.endpoint)
        with TopicAdminClient(endpoint=emulator.endpoint, token="all") as topics:
            for topic in (TOPIC, OTHER):
                topics.create_topic(name=topic)
                topics.publish(topic, [{"data": b"a"}])
        for path in ("/metrics", "/v0/status"):
            assert rest.call("GET", path).status == 401
            assert rest.raw("GET", path, Authorization="Bearer all")[0] == 200
        published = samples(rest, "ci")
        counts = published["pullstream_broker_published_messages_total"]
        assert counts == {(("project", "test"), ("topic", "orders")): 1}
        for path in ("/healthz", "/readyz"):
            assert rest.raw("GET", path)[::2] == (200, "Ok\n")


def test_a_broker_that_cannot_write_to_its_disk_reports_itself_as_not_ready(tmp_path: Path) -> None:
    """The process is alive. The answer does not tell the caller where the data are."""
    with Emulator(rest=True, data_dir=tmp_path) as emulator:
        rest = RestClient(emulator.endpoint)
        assert samples(rest)["pullstream_broker_storage_bytes"][()] > 0
        storage = emulator.broker.storage
        assert storage is not None
        storage._writer.failure = f"{tmp_path}: no space left"
        try:
            assert rest.raw("GET", "/readyz")[::2] == (
                503,
                "The data directory cannot be written.\n",
            )
            assert rest.raw("GET", "/healthz")[0] == 200
            assert samples(rest)["pullstream_broker_ready"] == {(): 0}
        finally:
            storage._writer.failure = ""
