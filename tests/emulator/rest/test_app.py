"""google.pubsub.v1 as JSON over HTTP, on gRPC's port."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import closing
from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol import errors
from tests.emulator.broker import PROJECT, SNAPSHOT, SUBSCRIPTION, TOPIC
from tests.emulator.rest_client import (
    V1_PROJECT,
    V1_SUBSCRIPTION,
    V1_TOPIC,
    RestClient,
    wait_for_pulls,
)
from tests.emulator.wire import Wire

V1_SNAPSHOT = f"/v1/{SNAPSHOT}"
V1_SCHEMA = f"{V1_PROJECT}/schemas/order"
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]})


def in_base64(data: str) -> str:
    return b64encode(data.encode()).decode()


def publish(rest: RestClient, *data: str, **fields: Any) -> list[str]:
    messages = [{"data": in_base64(d), **fields} for d in data]
    ids: list[str] = rest.ok("POST", f"{V1_TOPIC}:publish", {"messages": messages})["messageIds"]
    return ids


def pull(rest: RestClient, max_messages: int = 10) -> list[dict[str, Any]]:
    content = {"maxMessages": max_messages, "returnImmediately": True}
    received: list[dict[str, Any]] = rest.ok("POST", f"{V1_SUBSCRIPTION}:pull", content).get(
        "receivedMessages", []
    )
    return received


# ---- topics and subscriptions ------------------------------------------------------------------


def test_the_rest_api_creates_updates_lists_and_deletes_topics(rest: RestClient) -> None:
    """Each answer is the topic in the form of Google's JSON."""
    topic = {"name": TOPIC, "labels": {"team": "a"}}
    assert rest.ok("PUT", V1_TOPIC, {"labels": {"team": "a"}}) == topic
    assert rest.ok("GET", V1_TOPIC) == topic
    changed = {"name": TOPIC, "messageRetentionDuration": "600s"}
    content = {"topic": changed, "updateMask": "labels,messageRetentionDuration"}
    assert rest.ok("PATCH", V1_TOPIC, content) == changed
    assert rest.ok("GET", f"{V1_PROJECT}/topics") == {"topics": [changed]}
    assert rest.ok("DELETE", V1_TOPIC) == {}
    assert rest.ok("GET", f"{V1_PROJECT}/topics") == {}


def test_the_rest_api_creates_updates_lists_and_deletes_subscriptions(rest: RestClient) -> None:
    """The subscription has production's defaults.

    Fields with a default value of proto3 are omitted.
    """
    rest.ok("PUT", V1_TOPIC)
    subscription = {
        "name": SUBSCRIPTION,
        "topic": TOPIC,
        "pushConfig": {},
        "ackDeadlineSeconds": 10,
        "messageRetentionDuration": "604800s",
        "expirationPolicy": {"ttl": "2678400s"},
        "state": "ACTIVE",
    }
    assert rest.ok("PUT", V1_SUBSCRIPTION, {"topic": TOPIC}) == subscription
    changed = {**subscription, "ackDeadlineSeconds": 30}
    content = {"subscription": {"ackDeadlineSeconds": 30}, "updateMask": "ackDeadlineSeconds"}
    assert rest.ok("PATCH", V1_SUBSCRIPTION, content) == changed
    assert rest.ok("GET", V1_SUBSCRIPTION) == changed
    assert rest.ok("GET", f"{V1_PROJECT}/subscriptions") == {"subscriptions": [changed]}
    assert rest.ok("GET", f"{V1_TOPIC}/subscriptions") == {"subscriptions": [SUBSCRIPTION]}
    assert rest.ok("DELETE", V1_SUBSCRIPTION) == {}
    assert rest.call("GET", V1_SUBSCRIPTION).status == 404


def test_the_update_mask_of_a_rest_request_may_be_a_query_parameter(rest: RestClient) -> None:
    """Terraform's provider sends it so, with its own label and with fields that are null."""
    labels = {"goog-terraform-provisioned": "true"}
    rest.ok("PUT", f"{V1_TOPIC}?alt=json", {"name": TOPIC, "labels": labels})
    created = {"topic": TOPIC, "labels": labels, "bigqueryConfig": None}
    rest.ok("PUT", f"{V1_SUBSCRIPTION}?alt=json", created)
    fields = {"ackDeadlineSeconds": 30, "expirationPolicy": {}, "topic": TOPIC}
    mask = "ackDeadlineSeconds,expirationPolicy"
    changed = rest.ok(
        "PATCH", f"{V1_SUBSCRIPTION}?alt=json&updateMask={mask}", {"subscription": fields}
    )
    assert (changed["labels"], changed["ackDeadlineSeconds"]) == (labels, 30)
    assert changed["expirationPolicy"] == {}


@pytest.mark.parametrize("method", ["PATCH", "patch"])
def test_a_rest_post_with_an_x_http_method_override_header_is_handled_as_the_named_method(
    rest: RestClient, method: str
) -> None:
    """The HTTP/JSON transport of the official Java client sends updates in this form."""
    rest.create()
    content = {"topic": {"labels": {"team": "b"}}, "updateMask": "labels"}
    override = {"X-HTTP-Method-Override": method}
    changed = rest.call("POST", V1_TOPIC, content, **override)
    assert changed.status == 200
    assert changed.content["labels"] == {"team": "b"}
    assert rest.call("POST", V1_TOPIC, **{"X-HTTP-Method-Override": "DELETE"}).status == 200
    assert rest.call("GET", V1_TOPIC).status == 404


def test_a_rest_get_ignores_an_x_http_method_override_header(rest: RestClient) -> None:
    rest.create()
    assert rest.call("GET", V1_TOPIC, **{"X-HTTP-Method-Override": "DELETE"}).status == 200
    assert rest.call("GET", V1_TOPIC).status == 200


@pytest.mark.parametrize("method", ["", "NOTHING"])
def test_a_rest_post_with_an_unknown_x_http_method_override_is_answered_with_404(
    rest: RestClient, method: str
) -> None:
    rest.create()
    assert rest.call("POST", V1_TOPIC, {}, **{"X-HTTP-Method-Override": method}).status == 404


def test_the_rest_api_lists_resources_in_pages(rest: RestClient) -> None:
    """The query has the page size."""
    for name in ("aaa", "bbb", "ccc"):
        rest.ok("PUT", f"{V1_PROJECT}/topics/{name}")
    first = rest.ok("GET", f"{V1_PROJECT}/topics?pageSize=2")
    assert [t["name"][-3:] for t in first["topics"]] == ["aaa", "bbb"]
    token = first["nextPageToken"]
    rest_of_it = rest.ok("GET", f"{V1_PROJECT}/topics?pageSize=2&pageToken={token}")
    assert rest_of_it == {"topics": [{"name": f"{PROJECT}/topics/ccc"}]}


# ---- messages ----------------------------------------------------------------------------------


def test_the_rest_api_publishes_pulls_and_acknowledges_messages(
    rest: RestClient, emulator: Emulator
) -> None:
    """The messages have data, attributes and ordering key.

    Acknowledged messages do not come again.
    """
    rest.create()
    (message_id,) = publish(rest, "hello", attributes={"a": "ä"}, orderingKey="k")
    (received,) = pull(rest)
    message = received["message"]
    assert message.pop("publishTime").endswith("Z")
    assert message == {
        "data": in_base64("hello"),
        "attributes": {"a": "ä"},
        "messageId": message_id,
        "orderingKey": "k",
    }
    acknowledged = rest.ok(
        "POST", f"{V1_SUBSCRIPTION}:acknowledge", {"ackIds": [received["ackId"]]}
    )
    assert acknowledged == {}
    assert emulator.backlog(SUBSCRIPTION) == 0


def test_a_rest_call_that_sets_an_ack_deadline_of_zero_nacks_the_message(rest: RestClient) -> None:
    """The message is pulled again."""
    rest.create()
    publish(rest, "hello")
    (received,) = pull(rest)
    assert pull(rest) == []
    content = {"ackIds": [received["ackId"]], "ackDeadlineSeconds": 0}
    assert rest.ok("POST", f"{V1_SUBSCRIPTION}:modifyAckDeadline", content) == {}
    assert [r["message"] for r in pull(rest)] == [received["message"]]


def test_messages_published_over_http_can_be_pulled_over_grpc_and_vice_versa(
    rest: RestClient, wire: Wire
) -> None:
    """A message published over one protocol can be pulled over the other."""
    rest.create()
    publish(rest, "from http")
    wire.publish("from grpc")
    received = wire.pull(2)
    assert [r.message.data for r in received] == [b"from http", b"from grpc"]
    wire.modify(0, received[1].ack_id)
    assert [r["message"]["data"] for r in pull(rest)] == [in_base64("from grpc")]


def test_a_rest_pull_waits_for_a_published_message(rest: RestClient, emulator: Emulator) -> None:
    """With returnImmediately the pull does not wait."""
    rest.create()
    with closing(rest.connect()) as connection:
        connection.request("POST", f"{V1_SUBSCRIPTION}:pull", b'{"maxMessages": 1}')
        wait_for_pulls(emulator, 1)
        publish(rest, "hello")
        received = json.loads(connection.getresponse().read())["receivedMessages"]
    assert [r["message"]["data"] for r in received] == [in_base64("hello")]


def test_a_rest_pull_that_finds_no_message_is_answered_before_the_timeout_in_its_header(
    rest: RestClient,
) -> None:
    """A header may have the time limit, as in requests of Google's clients."""
    rest.create()
    reply = rest.call(
        "POST", f"{V1_SUBSCRIPTION}:pull", {"maxMessages": 1}, **{"X-Server-Timeout": "0.2"}
    )
    assert reply == (200, {})


def test_a_rest_pull_whose_caller_disconnected_takes_no_message(
    rest: RestClient, emulator: Emulator
) -> None:
    """The pull stops waiting when the connection closes."""
    rest.create()
    connection = rest.connect()
    connection.request("POST", f"{V1_SUBSCRIPTION}:pull", b'{"maxMessages": 1}')
    wait_for_pulls(emulator, 1)
    connection.close()
    wait_for_pulls(emulator, 0)
    publish(rest, "hello")
    assert len(pull(rest)) == 1


# ---- snapshots, schemas, policies --------------------------------------------------------------


def test_a_rest_call_can_seek_a_subscription_to_a_snapshot_or_a_time(rest: RestClient) -> None:
    """Messages that were acknowledged since are delivered again."""
    rest.create(retainAckedMessages=True)
    snapshot = rest.ok("PUT", V1_SNAPSHOT, {"subscription": SUBSCRIPTION})
    assert (snapshot["name"], snapshot["topic"]) == (SNAPSHOT, TOPIC)
    assert rest.ok("GET", f"{V1_TOPIC}/snapshots") == {"snapshots": [SNAPSHOT]}
    assert rest.ok("GET", f"{V1_PROJECT}/snapshots") == {"snapshots": [snapshot]}
    publish(rest, "hello")
    for target in ({"snapshot": SNAPSHOT}, {"time": "2001-02-03T04:05:06Z"}):
        (received,) = pull(rest)
        rest.ok("POST", f"{V1_SUBSCRIPTION}:acknowledge", {"ackIds": [received["ackId"]]})
        assert pull(rest) == []
        assert rest.ok("POST", f"{V1_SUBSCRIPTION}:seek", target) == {}
    assert len(pull(rest)) == 1
    content = {"snapshot": {"labels": {"a": "b"}}, "updateMask": "labels"}
    assert rest.ok("PATCH", V1_SNAPSHOT, content)["labels"] == {"a": "b"}
    assert rest.ok("DELETE", V1_SNAPSHOT) == {}
    assert rest.call("GET", V1_SNAPSHOT).status == 404


def test_the_rest_api_shows_a_detached_subscription_with_its_detached_field_set(
    rest: RestClient,
) -> None:
    """The call has no body."""
    rest.create()
    assert rest.ok("POST", f"{V1_SUBSCRIPTION}:detach") == {}
    assert rest.ok("GET", V1_SUBSCRIPTION)["detached"] is True


def test_a_rest_modify_push_config_call_replaces_the_push_config(rest: RestClient) -> None:
    """The new one may have an endpoint or none."""
    rest.create()
    push = {"pushEndpoint": "http://127.0.0.1:1/push"}
    assert rest.ok("POST", f"{V1_SUBSCRIPTION}:modifyPushConfig", {"pushConfig": push}) == {}
    assert rest.ok("GET", V1_SUBSCRIPTION)["pushConfig"]["pushEndpoint"] == push["pushEndpoint"]
    assert rest.ok("POST", f"{V1_SUBSCRIPTION}:modifyPushConfig", {}) == {}
    assert rest.ok("GET", V1_SUBSCRIPTION)["pushConfig"] == {}


def test_the_rest_api_commits_lists_rolls_back_and_deletes_schema_revisions(
    rest: RestClient,
) -> None:
    """The test creates, lists, commits, rolls back, deletes a revision, and deletes the schema."""
    definition = {"type": "AVRO", "definition": AVRO}
    first = rest.ok("POST", f"{V1_PROJECT}/schemas?schemaId=order", definition)
    assert first["definition"] == AVRO
    assert rest.ok("GET", V1_SCHEMA) == first
    assert "definition" not in rest.ok("GET", f"{V1_SCHEMA}?view=BASIC")
    assert [s["name"] for s in rest.ok("GET", f"{V1_PROJECT}/schemas")["schemas"]] == [
        first["name"]
    ]
    second = rest.ok("POST", f"{V1_SCHEMA}:commit", {"schema": {**definition, "name": ""}})
    third = rest.ok("POST", f"{V1_SCHEMA}:rollback", {"revisionId": first["revisionId"]})
    revisions = rest.ok("GET", f"{V1_SCHEMA}:listRevisions")["schemas"]
    assert [r["revisionId"] for r in revisions] == [r["revisionId"] for r in (third, second, first)]
    rest.ok("DELETE", f"{V1_SCHEMA}@{second['revisionId']}:deleteRevision")
    assert len(rest.ok("GET", f"{V1_SCHEMA}:listRevisions")["schemas"]) == 2
    assert rest.ok("DELETE", V1_SCHEMA) == {}
    assert rest.call("GET", V1_SCHEMA).status == 404


def test_the_rest_api_validates_schemas_and_messages(rest: RestClient) -> None:
    """Validation creates nothing."""
    schema = {"type": "AVRO", "definition": AVRO}
    assert rest.ok("POST", f"{V1_PROJECT}/schemas:validate", {"schema": schema}) == {}
    for data, status in (('{"id": 1}', 200), ('{"id": "x"}', 400)):
        content = {"schema": schema, "message": in_base64(data), "encoding": "JSON"}
        reply = rest.call("POST", f"{V1_PROJECT}/schemas:validateMessage", content)
        assert reply.status == status


def test_the_rest_api_stores_iam_policies_and_grants_tested_permissions(rest: RestClient) -> None:
    """The test covers every kind of resource."""
    rest.create()
    rest.ok("PUT", V1_SNAPSHOT, {"subscription": SUBSCRIPTION})
    rest.ok("POST", f"{V1_PROJECT}/schemas?schemaId=order", {"type": "AVRO", "definition": AVRO})
    bindings = [{"role": "roles/viewer", "members": ["user:a@b.c"]}]
    for path in (V1_TOPIC, V1_SUBSCRIPTION, V1_SNAPSHOT, V1_SCHEMA):
        policy = rest.ok("POST", f"{path}:setIamPolicy", {"policy": {"bindings": bindings}})
        assert policy["bindings"] == bindings
        assert rest.ok("GET", f"{path}:getIamPolicy?options.requestedPolicyVersion=3") == policy
        permissions = {"permissions": ["pubsub.topics.get"]}
        assert rest.ok("POST", f"{path}:testIamPermissions", permissions) == permissions


# ---- form of answers ---------------------------------------------------------------------------


def test_json_answers_of_the_rest_api_are_pretty_printed_by_default(rest: RestClient) -> None:
    """Enums are numbers for Google's generated clients, which ask for them."""
    rest.create()
    _, _, pretty = rest.raw("GET", V1_SUBSCRIPTION)
    assert pretty.startswith('{\n  "name": ')
    _, _, plain = rest.raw("GET", f"{V1_SUBSCRIPTION}?prettyPrint=false&key=any")
    assert plain.count("\n") == 1
    assert json.loads(plain) == json.loads(pretty)
    numbers = rest.ok("GET", f"{V1_SUBSCRIPTION}?$alt=json;enum-encoding=int")
    assert numbers["state"] == 1


def test_errors_of_the_rest_api_have_google_s_json_form(rest: RestClient) -> None:
    """Errors have the HTTP codes of Google's mapping, and its texts."""
    rest.create()
    assert rest.call("PUT", V1_TOPIC).error == (
        409,
        "ALREADY_EXISTS",
        "Resource already exists in the project (resource=orders).",
    )
    assert rest.call("GET", f"{V1_TOPIC}x").error == (
        404,
        "NOT_FOUND",
        "Resource not found (resource=ordersx).",
    )
    assert rest.call("GET", f"{V1_PROJECT}/topics/1").error[:2] == (400, "INVALID_ARGUMENT")
    content = {"messages": [{"text": "hello"}]}
    assert rest.call("POST", f"{V1_TOPIC}:publish", content).error[:2] == (400, "INVALID_ARGUMENT")
    rest.ok("POST", f"{V1_SUBSCRIPTION}:detach")
    assert rest.call("POST", f"{V1_SUBSCRIPTION}:pull", {"maxMessages": 1}).error[:2] == (
        400,
        "FAILED_PRECONDITION",
    )


@pytest.mark.parametrize(
    "path", ["/v1/", "/v1/projects/p", "/v2/projects/p/topics", "/favicon.ico"]
)
def test_the_answer_to_an_unknown_rest_path_is_404(rest: RestClient, path: str) -> None:
    """The error is JSON like all others."""
    assert rest.call("GET", path).error == (404, "NOT_FOUND", "Method not found.")


def test_a_rest_error_includes_the_error_details_of_the_call(rest: RestClient) -> None:
    """With exactly-once delivery the details have the result for each ack ID."""
    rest.create(enableExactlyOnceDelivery=True)
    publish(rest, "hello")
    (received,) = pull(rest)
    content = {"ackIds": [received["ackId"]]}
    rest.ok("POST", f"{V1_SUBSCRIPTION}:modifyAckDeadline", {**content, "ackDeadlineSeconds": 0})
    reply = rest.call("POST", f"{V1_SUBSCRIPTION}:acknowledge", content)
    assert reply.status == 400
    assert reply.content["error"]["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "EXACTLY_ONCE_ACKID_FAILURE",
            "domain": "pubsub.googleapis.com",
            "metadata": {received["ackId"]: "PERMANENT_FAILURE_INVALID_ACK_ID"},
        }
    ]


def test_a_rest_request_body_of_ten_mebibytes_is_accepted_and_a_larger_one_refused(
    rest: RestClient,
) -> None:
    """The production front end has the same limit."""
    rest.create()
    body = b'{"messages": [{"data": ""}]}'
    status, _, text = rest.raw("POST", f"{V1_TOPIC}:publish", body.ljust(10 * 1024 * 1024))
    assert (status, json.loads(text)["error"]["message"][:3]) == (400, "One")
    status, _, text = rest.raw("POST", f"{V1_TOPIC}:publish", body.ljust(10 * 1024 * 1024 + 1))
    assert status == 400
    assert json.loads(text)["error"]["message"] == (
        "Request payload size exceeds the limit: 10485760 bytes."
    )


# ---- faults ------------------------------------------------------------------------------------


def test_faults_of_a_grpc_method_also_affect_the_corresponding_rest_call(
    rest: RestClient, emulator: Emulator
) -> None:
    """The effect is the same as on gRPC calls."""
    rest.create()
    with emulator.faults.error("Publish", errors.Unavailable("Not now."), times=1):
        content = {"messages": [{"data": in_base64("lost")}]}
        reply = rest.call("POST", f"{V1_TOPIC}:publish", content)
        assert reply.error == (503, "UNAVAILABLE", "Not now.")
    with emulator.faults.lose_reply("Publish", times=1):
        assert rest.call("POST", f"{V1_TOPIC}:publish", content).status == 503
    assert emulator.backlog(SUBSCRIPTION) == 1


def test_an_internal_error_in_a_rest_call_is_answered_with_500_and_logged(
    rest: RestClient, emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets one sentence, and the log has the traceback."""

    def fail(request: Any) -> None:
        raise ValueError("a mistake of ours")

    with emulator.faults.error("GetTopic", fail):
        assert rest.call("GET", V1_TOPIC).error == (
            500,
            "INTERNAL",
            "GetTopic failed inside the broker.",
        )
    assert "a mistake of ours" in caplog.text
