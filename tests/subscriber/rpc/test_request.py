"""Requests are made of messages, dicts or keywords, and errors name the field."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from google.protobuf.message import Message

from pullstream.rpc.request import build_request, make_message, routing_header
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD, RPCS


def test_keyword_arguments_become_request_fields_except_those_with_the_value_none() -> None:
    """A keyword with None does not count as set."""
    built = build_request(pubsub.Subscription, None, {"name": "s", "push_config": None})
    assert built.name == "s"
    assert not built.HasField("push_config")


def test_a_request_given_as_a_dict_is_converted_to_protobuf_with_all_nested_fields() -> None:
    """Nested dicts, timedelta and datetime work as in protobuf's own constructor."""
    built = build_request(
        pubsub.Subscription,
        {
            "name": "s",
            "push_config": {"push_endpoint": "https://e"},
            "message_retention_duration": timedelta(hours=1),
            "labels": {"a": "b"},
        },
        {},
    )
    assert built.push_config.push_endpoint == "https://e"
    assert built.message_retention_duration.seconds == 3600
    assert built.labels["a"] == "b"
    moment = datetime(2026, 1, 2, tzinfo=timezone.utc)
    assert (
        make_message(pubsub.SeekRequest, {"time": moment}).time.ToDatetime(timezone.utc) == moment
    )


def test_a_request_given_as_a_protobuf_message_is_sent_unchanged() -> None:
    request = pubsub.GetTopicRequest(topic="t")
    assert build_request(pubsub.GetTopicRequest, request, {"topic": None}) is request


def test_a_client_call_refuses_a_request_object_together_with_field_keywords() -> None:
    """Either choice would be a guess."""
    with pytest.raises(
        ValueError, match=r"either request= or keywords, .* \(got request= and topic"
    ):
        build_request(pubsub.GetTopicRequest, {"topic": "t"}, {"topic": "u"})


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"nme": "s"}, ValueError, r"^nme: Subscription has no such field; it has ack_deadline_s"),
        ({"push_config": {"url": "x"}}, ValueError, r"^push_config.url: PushConfig has no"),
        ({"ack_deadline_seconds": "ten"}, TypeError, r"^ack_deadline_seconds: 'ten' does not fit"),
        ({"name": 3}, TypeError, r"^name: 3 does not fit"),
        ({"push_config": {"push_endpoint": 3}}, TypeError, r"^push_config.push_endpoint: 3 does"),
        ({"labels": {"a": 1}}, TypeError, r"^labels: \{'a': 1\} does not fit"),
        ({"retry_policy": pubsub.PushConfig()}, TypeError, r"^retry_policy: a PushConfig does"),
        ({"message_transforms": "a"}, TypeError, r"^message_transforms must be a list, got 'a'"),
    ],
)
def test_the_error_for_an_unknown_or_invalid_request_field_contains_the_field_name(
    fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The error also has the place in a nested dict and the valid fields."""
    with pytest.raises(error, match=text):
        build_request(pubsub.Subscription, fields, {})


def subscription_update(**fields: Any) -> pubsub.UpdateSubscriptionRequest:
    """Return a request whose values are in a nested dict, in a dict and in keywords."""
    request = {"subscription": {"name": "s", **fields}}
    built = build_request(pubsub.UpdateSubscriptionRequest, request, {})
    assert build_request(pubsub.UpdateSubscriptionRequest, None, request) == built
    assert build_request(pubsub.Subscription, None, {"name": "s", **fields}) == built.subscription
    return built


@pytest.mark.parametrize(
    ("text", "seconds"), [("600s", 600), ("1.5s", 1.5), ("-3s", -3), ("0.000001s", 1e-6)]
)
def test_a_duration_field_of_a_request_accepts_text_such_as_10s(text: str, seconds: float) -> None:
    """The official client accepts it, too, at every depth."""
    built = subscription_update(
        message_retention_duration=text, retry_policy={"minimum_backoff": text}
    )
    assert built.subscription.message_retention_duration.ToTimedelta().total_seconds() == seconds
    assert built.subscription.retry_policy.minimum_backoff.ToTimedelta().total_seconds() == seconds


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("2026-01-02T03:04:05Z", 0),
        ("2026-01-02T05:04:05+02:00", 0),
        ("2026-01-02T03:04:05.123456789Z", 123456789),
    ],
)
def test_a_timestamp_field_of_a_request_accepts_rfc_3339_text(text: str, nanos: int) -> None:
    """RFC 3339, as in the official client, also in the items of a list."""
    moment = build_request(pubsub.SeekRequest, None, {"subscription": "s", "time": text}).time
    assert (moment.seconds, moment.nanos) == (1767323045, nanos)
    request = {"messages": [{"publish_time": text}]}
    built = build_request(pubsub.PublishRequest, request, {})
    assert built.messages[0].publish_time == moment


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("labels", ["labels"]),
        ("labels,ackDeadlineSeconds", ["labels", "ack_deadline_seconds"]),
        ("labels, ack_deadline_seconds", ["labels", "ack_deadline_seconds"]),
        ("retryPolicy.minimumBackoff", ["retry_policy.minimum_backoff"]),
        ("", []),
    ],
)
def test_a_field_mask_of_a_request_accepts_text_with_comma_separated_paths(
    text: str, paths: list[str]
) -> None:
    """The official client allows names without underscores only."""
    for request, fields in (({"update_mask": text}, {}), (None, {"update_mask": text})):
        built = build_request(pubsub.UpdateTopicRequest, request, fields)
        assert list(built.update_mask.paths) == paths


@pytest.mark.parametrize(
    ("message_type", "field", "value", "form"),
    [
        (pubsub.Subscription, "message_retention_duration", "10m", "text in seconds such as '600s"),
        (pubsub.Subscription, "message_retention_duration", "600", "text in seconds such as '600s"),
        (pubsub.Subscription, "message_retention_duration", 600, "a timedelta, or text in seconds"),
        (pubsub.Subscription, "message_retention_duration", "9" * 400 + "s", "a timedelta, or"),
        (pubsub.SeekRequest, "time", "2026-01-02", "text such as '2026-01-31T12:00:00Z'"),
        (pubsub.SeekRequest, "time", "2026-01-02T03:04:05", "text such as '2026-01-31T12:00:00Z'"),
        (pubsub.SeekRequest, "time", 1767323045, "a datetime, or text"),
        (pubsub.UpdateTopicRequest, "update_mask", ["labels"], "text such as 'labels,ack_dead"),
    ],
)
def test_the_error_for_invalid_time_duration_or_field_mask_text_names_the_request_field(
    message_type: type[Message], field: str, value: Any, form: str
) -> None:
    """The error names the field and the allowed forms."""
    with pytest.raises(TypeError, match=rf"^{field}: .* does not fit \(it must be .*{form}"):
        build_request(message_type, None, {field: value})


def test_the_error_for_an_invalid_value_in_a_nested_request_dict_has_the_field_path() -> None:
    """All other values have the same error."""
    place = r"^subscription\.retry_policy\.minimum_backoff: '10m' does not fit"
    with pytest.raises(TypeError, match=place):
        subscription_update(retry_policy={"minimum_backoff": "10m"})


def test_a_request_field_that_is_a_list_of_strings_refuses_a_single_string() -> None:
    """Protobuf alone would acknowledge "a", "b" and "c"."""
    with pytest.raises(TypeError, match="ack_ids must be a list, got 'abc'"):
        build_request(pubsub.AcknowledgeRequest, None, {"ack_ids": "abc"})


def test_a_client_call_refuses_a_protobuf_request_of_the_wrong_type() -> None:
    """The error has the expected type and the given one."""
    wrong: Any = pubsub.Topic()
    with pytest.raises(TypeError, match="request must be a GetTopicRequest or a dict, got Topic"):
        build_request(pubsub.GetTopicRequest, wrong, {})


@pytest.mark.parametrize(
    ("request_", "header"),
    [
        (pubsub.PullRequest(subscription="projects/p/s"), "subscription=projects/p/s"),
        (pubsub.Topic(name="projects/p/topics/a%b+c"), "name=projects/p/topics/a%25b%2Bc"),
        (pubsub.UpdateTopicRequest(topic={"name": "projects/p"}), "topic.name=projects/p"),
        (pubsub.ListTopicsRequest(project="projects/p"), "project=projects/p"),
    ],
)
def test_the_routing_header_of_a_call_contains_the_percent_encoded_resource_name(
    request_: Message, header: str
) -> None:
    """The header is percent-encoded except for slashes."""
    assert routing_header(request_) == ("x-goog-request-params", header)


# Only Google's have front ends that route.
@pytest.mark.parametrize("method", [r.method for r in RPCS if r.service.startswith("google.")])
def test_every_protobuf_request_type_has_the_resource_name_in_field_number_one(method: str) -> None:
    """The routing header depends on this property of the wire."""
    field = BY_METHOD[method].request.DESCRIPTOR.fields_by_number[1]
    assert field.name in {
        *("name", "parent", "project", "resource"),
        *("snapshot", "subscription", "topic"),
    }
    assert routing_header(BY_METHOD[method].request())[1].startswith(field.name)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "\udcff"}, r"^name: '\\udcff' does not fit \("),
        ({"labels": {"a": "\udcff"}}, r"^labels: \{'a': '\\udcff'\} does not fit \("),
        (
            {"push_config": {"push_endpoint": "\udcff"}},
            r"^push_config.push_endpoint: '\\udcff' does",
        ),
    ],
)
def test_the_error_for_request_text_that_utf_8_cannot_encode_contains_the_field_name(
    fields: dict[str, Any], text: str
) -> None:
    """The type of protobuf's error, UnicodeEncodeError, cannot be made from a text."""
    with pytest.raises(ValueError, match=text) as raised:
        make_message(pubsub.Subscription, fields)
    assert type(raised.value) is ValueError


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the process be in a time zone that differs from UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    "build",
    [
        lambda when: build_request(pubsub.SeekRequest, None, {"time": when}).time,
        lambda when: build_request(pubsub.SeekRequest, {"time": when}, {}).time,
        lambda when: (
            build_request(
                pubsub.UpdateSnapshotRequest, {"snapshot": {"expire_time": when}}, {}
            ).snapshot.expire_time
        ),
        lambda when: (
            build_request(pubsub.PublishRequest, {"messages": [{"publish_time": when}]}, {})
            .messages[0]
            .publish_time
        ),
    ],
    ids=["keyword", "dict", "inner dict", "list"],
)
def test_a_request_datetime_without_a_time_zone_is_interpreted_as_local_time(build: Any) -> None:
    """As in the official client, in summer and in winter. Another reading loses the backlog."""
    summer, winter = datetime(2026, 7, 1, 12), datetime(2026, 11, 26, 12)
    assert build(summer).ToDatetime() == datetime(2026, 7, 1, 10)
    assert build(winter).ToDatetime() == datetime(2026, 11, 26, 11)
    aware = winter.replace(tzinfo=timezone.utc)
    assert build(aware).ToDatetime() == winter
