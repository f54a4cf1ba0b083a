"""Translation of path, query and body into requests, and of messages into JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.rest import proto_json
from pullstream_emulator.rest.request_binding import read
from pullstream_emulator.rest.routes import ROUTES
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema

ROUTE = {route.method: route for route in ROUTES}
TOPIC = "projects/p/topics/t"
SUBSCRIPTION = "projects/p/subscriptions/s"


def request(method: str, name: str, content: Any = None, **query: str) -> Message:
    body = b"" if content is None else json.dumps(content).encode()
    return read(ROUTE[method], name, query.items(), body)


def refusal(method: str, name: str, content: Any = None, **query: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        request(method, name, content, **query)
    text: str = caught.value.message
    return text


# ---- requests ----------------------------------------------------------------------------------


def test_the_resource_name_in_a_rest_path_replaces_the_name_in_the_json_body() -> None:
    """A name in the body is ignored."""
    content = {"name": "projects/p/topics/other", "labels": {"a": "b"}}
    assert request("CreateTopic", TOPIC, content) == pubsub.Topic(name=TOPIC, labels={"a": "b"})


def test_a_rest_path_may_set_the_name_of_a_nested_resource_in_the_request() -> None:
    """The two update calls do so. The body may have a field mask; Terraform omits it."""
    expected = pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=TOPIC, labels={"a": "b"}))
    expected.update_mask.paths.extend(["labels", "schema_settings.first_revision_id"])
    topic = {"topic": {"labels": {"a": "b"}}}
    mask = "labels,schemaSettings.firstRevisionId"
    assert request("UpdateTopic", TOPIC, {**topic, "updateMask": mask}) == expected
    assert request("UpdateTopic", TOPIC, topic, updateMask=mask) == expected
    snake = "labels,schema_settings.first_revision_id"
    assert request("UpdateTopic", TOPIC, {**topic, "update_mask": snake}) == expected


def test_a_rest_body_may_be_a_single_field_of_the_request() -> None:
    """Creating a schema does so. The schema's ID is in the query."""
    content = {"type": "AVRO", "definition": "{}"}
    assert request("CreateSchema", "projects/p", content, schemaId="s") == (
        schema.CreateSchemaRequest(
            parent="projects/p",
            schema=schema.Schema(type=schema.Schema.Type.AVRO, definition="{}"),
            schema_id="s",
        )
    )


def test_a_rest_request_without_a_body_reads_its_fields_from_the_query() -> None:
    """The test covers numbers, enums by name or number, and nested fields, in both spellings."""
    listed = pubsub.ListTopicsRequest(project="projects/p", page_size=3, page_token="x")
    assert request("ListTopics", "projects/p", pageSize="3", pageToken="x") == listed
    assert request("ListTopics", "projects/p", page_size="3", page_token="x") == listed
    basic = schema.ListSchemasRequest(parent="projects/p", view=schema.SchemaView.BASIC)
    assert request("ListSchemas", "projects/p", view="BASIC") == basic
    assert request("ListSchemas", "projects/p", view="1") == basic
    policy = request("GetIamPolicy", TOPIC, **{"options.requestedPolicyVersion": "3"})
    assert getattr(policy, "options").requested_policy_version == 3  # noqa: B009
    pull = request("Pull", SUBSCRIPTION, {"maxMessages": 1}, returnImmediately="true")
    assert getattr(pull, "return_immediately") is True  # noqa: B009


def test_a_rest_request_with_common_google_api_query_parameters_succeeds() -> None:
    """`key` is an example. All Google APIs have them."""
    query = {"key": "x", "alt": "json", "$alt": "json", "prettyPrint": "false", "fields": "a"}
    assert request("GetTopic", TOPIC, **query) == pubsub.GetTopicRequest(topic=TOPIC)


def test_a_lone_surrogate_as_an_enum_value_in_a_rest_body_is_refused() -> None:
    text = refusal("CreateSchema", "projects/p", {"type": "\ud800"})
    assert text.startswith("Invalid value at 'schema.type' ")


def test_a_rest_body_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(ROUTE["CreateTopic"], TOPIC, (), b'{"labels": "\xff"}')
    assert caught.value.message == "Invalid JSON payload received. It is not UTF-8."


@pytest.mark.parametrize("body", [b"", b"  \n", b"{}", b'{"labels": null}'])
def test_an_empty_rest_body_is_read_as_an_empty_request(body: bytes) -> None:
    """A request whose fields are all null is empty, too."""
    assert read(ROUTE["CreateTopic"], TOPIC, (), body) == pubsub.Topic(name=TOPIC)


# ---- refusals ----------------------------------------------------------------------------------


def test_the_error_for_an_unknown_field_in_a_rest_body_names_the_field_and_its_position() -> None:
    """The error has the text of the production service."""
    text = 'Invalid JSON payload received. Unknown name "foo"'
    assert refusal("CreateTopic", TOPIC, {"foo": 1}) == f"{text}: Cannot find field."
    messages = {"messages": [{"data": ""}, {"foo": 1}]}
    assert refusal("Publish", TOPIC, messages) == f"{text} at 'messages[1]': Cannot find field."
    schema_at = f"{text} at 'schema': Cannot find field."
    assert refusal("CreateSchema", "projects/p", {"foo": 1}) == schema_at
    # The request messages of these calls have no fields in their bodies.
    assert refusal("DetachSubscription", SUBSCRIPTION, {"foo": 1}) == f"{text}: Cannot find field."
    assert refusal("GetTopic", TOPIC, foo="1") == (
        f"{text}: Cannot bind query parameter. Field 'foo' could not be found in request message."
    )


@pytest.mark.parametrize("data", ["a", "aGVsbG8=!", "a b=", "äöüß", "====a", 1, {}, [], True])
def test_message_data_in_a_rest_body_that_are_not_base64_are_refused(data: Any) -> None:
    """The check includes characters that Python's decoder would skip."""
    text = refusal("Publish", TOPIC, {"messages": [{"data": data}]})
    assert text.startswith("Invalid value at 'messages[0].data' (TYPE_BYTES), ")


@pytest.mark.parametrize(
    ("method", "content"),
    [
        ("Pull", {"maxMessages": "many"}),
        ("Pull", {"maxMessages": 1.5}),
        ("Pull", {"maxMessages": 1 << 40}),
        ("Pull", {"maxMessages": {}}),
        ("Acknowledge", {"ackIds": [1]}),
        ("Acknowledge", {"ackIds": [None]}),
        ("Acknowledge", {"ackIds": "1"}),
        ("Acknowledge", {"ackIds": ["\ud800"]}),
        ("Seek", {"time": "yesterday"}),
        ("Seek", {"time": "2026-01-01T00:00:00Z", "snapshot": "projects/p/snapshots/s"}),
        ("CreateSubscription", {"messageRetentionDuration": 600}),
        ("CreateSubscription", {"labels": ["a"]}),
        ("CreateSubscription", {"labels": {"a": {}}}),
        ("CreateSubscription", {"pushConfig": "x"}),
        ("CreateSubscription", {"state": "SLEEPY"}),
        ("UpdateSubscription", {"updateMask": ["labels"]}),
        ("CreateSubscription", []),
        ("CreateSubscription", "x"),
        ("CreateSubscription", None),
    ],
)
def test_a_rest_value_of_a_wrong_type_is_refused(method: str, content: Any) -> None:
    """The error does not mention the package of the message classes."""
    body = json.dumps(content).encode()
    with pytest.raises(InvalidArgument) as caught:
        read(ROUTE[method], SUBSCRIPTION, (), body)
    assert caught.value.message.startswith("Invalid ")
    assert "pullstream" not in caught.value.message


@pytest.mark.parametrize(
    ("method", "content", "problem"),
    [
        (
            "Publish",
            {"messages": [{"attributes": {"a": "b", "n": 1}}]},
            "'messages[0].attributes[1].value' (TYPE_STRING), 1",
        ),
        (
            "Publish",
            {"messages": [{"attributes": {"a": None}}]},
            "'messages[0].attributes[0].value' (TYPE_STRING), null",
        ),
        (
            "Publish",
            {"messages": [{"attributes": {"a": ["b"]}}]},
            "'messages[0].attributes[0].value' (TYPE_STRING), [\"b\"]",
        ),
        (
            "Publish",
            {"messages": [{"attributes": {"\ud800": "b"}}]},
            "'messages[0].attributes[0].key' (TYPE_STRING), \"\\ud800\"",
        ),
        ("Publish", {"messages": [{"attributes": []}]}, "'messages[0].attributes' (Map), []"),
        (
            "Publish",
            {"messages": [{"orderingKey": 7}]},
            "'messages[0].ordering_key' (TYPE_STRING), 7",
        ),
        ("Publish", {"messages": "a"}, "'messages' (PubsubMessage), \"a\" is not a list"),
        ("CreateSubscription", {"labels": {"a": 1}}, "'labels[0].value' (TYPE_STRING), 1"),
        ("Acknowledge", {"ackIds": [1]}, "'ack_ids[0]' (TYPE_STRING), 1"),
        ("Acknowledge", {"ackIds": [None]}, "'ack_ids[0]' (TYPE_STRING), null"),
        ("Acknowledge", {"ackIds": "1"}, "'ack_ids' (TYPE_STRING), \"1\" is not a list"),
        ("Pull", {"maxMessages": "many"}, "'max_messages' (TYPE_INT32), \"many\""),
        ("Pull", {"maxMessages": 1.5}, "'max_messages' (TYPE_INT32), 1.5"),
        ("Pull", {"maxMessages": True}, "'max_messages' (TYPE_INT32), true"),
        ("Pull", {"maxMessages": 1 << 31}, "'max_messages' (TYPE_INT32), 2147483648"),
        ("Pull", {"maxMessages": "9" * 5000}, f"'max_messages' (TYPE_INT32), \"{'9' * 99}..."),
        ("Pull", {"returnImmediately": "yes"}, "'return_immediately' (TYPE_BOOL), \"yes\""),
        ("Pull", {"returnImmediately": 1}, "'return_immediately' (TYPE_BOOL), 1"),
        (
            "CreateSchema",
            {"type": "AVROS"},
            "'schema.type' (type.googleapis.com/google.pubsub.v1.Schema.Type), \"AVROS\"",
        ),
        *[
            (
                "Seek",
                {"time": time},
                "'time' (type.googleapis.com/google.protobuf.Timestamp), Field 'time', Illegal "
                "timestamp format; timestamps must end with 'Z' or have a valid timezone offset.",
            )
            for time in (
                "yesterday",
                "2026-01-01t00:00:00z",
                "2026-01-01",
                1,
                "2026-13-01T00:00:00Z",
            )
        ],
        *[
            (
                "CreateSubscription",
                {"messageRetentionDuration": duration},
                "'message_retention_duration' (type.googleapis.com/google.protobuf.Duration), "
                "Field 'messageRetentionDuration', Illegal duration format; duration must end with "
                "'s'.",
            )
            for duration in (600, "600", "1h", "xs", "s", "9" * 30 + "s", {"seconds": 600})
        ],
        (
            "UpdateSubscription",
            {"updateMask": ["labels"]},
            "'update_mask' (type.googleapis.com/google.protobuf.FieldMask), Field 'updateMask', "
            "Illegal field mask format; a mask is a string of paths with commas between them.",
        ),
    ],
)
def test_the_error_for_an_invalid_value_in_a_rest_body_has_google_s_text(
    method: str, content: Any, problem: str
) -> None:
    assert refusal(method, SUBSCRIPTION, content).startswith(f"Invalid value at {problem}")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"pageSize": "abc"}, "'page_size' (TYPE_INT32), \"abc\""),
        ({"page_size": "9" * 5000}, f"'page_size' (TYPE_INT32), \"{'9' * 99}..."),
        ({"pageSize": "1.5"}, "'page_size' (TYPE_INT32), \"1.5\""),
        ({"pageSize": ""}, "'page_size' (TYPE_INT32), \"\""),
    ],
)
def test_the_error_for_an_invalid_rest_query_parameter_has_google_s_text(
    query: dict[str, str], problem: str
) -> None:
    text = refusal("ListTopics", "projects/p", **query)
    assert text.startswith(f"Invalid value at {problem}")


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1e999", "9" * 5000 + ".0"])
def test_a_too_long_number_in_a_rest_body_is_refused(number: str) -> None:
    body = f'{{"maxMessages": {number}}}'.encode()
    with pytest.raises(InvalidArgument) as refused:
        read(ROUTE["Pull"], SUBSCRIPTION, (), body)
    assert refused.value.message == "Invalid JSON payload received. Unable to parse number."


@pytest.mark.parametrize("number", [3, 3.0, "3", "3.0", "3e0", "30e-1"])
def test_an_integer_in_a_rest_body_may_be_written_as_json_text_or_float(number: Any) -> None:
    wanted = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=3)
    assert request("Pull", SUBSCRIPTION, {"maxMessages": number}) == wanted


@pytest.mark.parametrize("value", [True, "true"])
def test_a_boolean_in_a_rest_body_may_be_written_as_json_text(value: Any) -> None:
    pull = request("Pull", SUBSCRIPTION, {"maxMessages": 1, "returnImmediately": value})
    assert getattr(pull, "return_immediately") is True  # noqa: B009


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b"\xff\xfe\xfd",
        b'{"maxMessages": NaN}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"pushConfig":' * 50 + b"{}" + b"}" * 50,
    ],
)
def test_a_rest_body_that_is_not_json_is_refused(body: bytes) -> None:
    """The body is broken, has no known encoding, or is nested too deeply."""
    with pytest.raises(InvalidArgument, match="400 Invalid JSON payload received\\. "):
        read(ROUTE["CreateSubscription"], SUBSCRIPTION, (), body)


def test_the_error_about_a_long_invalid_rest_value_quotes_only_a_part_of_the_value() -> None:
    """The error quotes only a part."""
    assert len(refusal("CreateTopic", TOPIC, {"x" * 100_000: 1})) < 300
    assert len(refusal("Publish", TOPIC, {"messages": [{"data": "?" * 100_000}]})) < 300
    assert len(refusal("Pull", SUBSCRIPTION, {"maxMessages": "x" * 100_000})) < 300
    assert len(refusal("GetTopic", TOPIC, **{"x" * 100_000: "1"})) < 400


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
names = st.sampled_from([*(f.json_name for f in pubsub.Subscription.DESCRIPTOR.fields), "nothing"])


@given(st.dictionaries(names, json_values))
def test_any_json_body_of_a_rest_request_is_read_or_refused_with_invalid_argument(
    content: dict[str, Any],
) -> None:
    """There is no other exception, whatever is in the fields."""
    body = json.dumps(content).encode()
    try:
        made = read(ROUTE["CreateSubscription"], SUBSCRIPTION, (), body)
    except InvalidArgument:
        return
    assert isinstance(made, pubsub.Subscription)
    assert "nothing" not in content or content["nothing"] is None


# ---- messages ----------------------------------------------------------------------------------


@given(st.binary(), st.booleans(), st.booleans())
def test_message_data_in_a_rest_body_may_be_url_safe_or_unpadded_base64(
    data: bytes, safe: bool, padded: bool
) -> None:
    """JSON of proto3 allows these forms."""
    encode = base64.urlsafe_b64encode if safe else base64.b64encode
    text = encode(data).decode()
    message = {"data": text if padded else text.rstrip("=")}
    published = request("Publish", TOPIC, {"messages": [message]})
    assert published == pubsub.PublishRequest(
        topic=TOPIC, messages=[pubsub.PubsubMessage(data=data)]
    )


messages = st.builds(
    pubsub.PubsubMessage,
    data=st.binary(),
    attributes=st.dictionaries(st.text(), st.text()),
    message_id=st.text(),
    ordering_key=st.text(),
)


@given(st.lists(messages), st.booleans())
def test_a_protobuf_message_written_as_rest_json_can_be_read_back(
    sent: list[pubsub.PubsubMessage], pretty: bool
) -> None:
    """The test covers bytes, text of all scripts, and maps."""
    written = pubsub.PublishRequest(messages=sent)
    again = pubsub.PublishRequest()
    proto_json.merge(again, proto_json.loads(proto_json.dumps(written, pretty=pretty).encode()))
    assert again == written
