"""PublisherClient against a scripted server and against the broker."""

from __future__ import annotations

import base64
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from freezegun import freeze_time
from google.api_core.retry import Retry
from google.cloud import pubsub_v1
from google.pubsub_v1 import types as official_types

import pullstream
from pullstream import (
    BatchSettings,
    FlowControlLimitError,
    LimitExceededBehavior,
    MessageTooLargeError,
    PublisherClient,
    PublisherClosed,
    PublisherHooks,
    PublisherOptions,
    PublishError,
    PublisherStatistics,
    PublishFlowControl,
    PublishFuture,
    PublishHedging,
    PublishToPausedOrderingKeyException,
    SubscriberClient,
    TopicAdminClient,
)
from pullstream.publisher import sender
from pullstream.publisher.flow_control import PublishGauge
from pullstream.publisher.sender import TELEMETRY_HEADER
from pullstream.publisher.settings import is_transient
from pullstream.runtime.process import Latch
from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK
from pullstream_protocol.errors import (
    Aborted,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    RpcError,
    Unavailable,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import IDEMPOTENCY_KEY
from tests.threads import on_threads, run_on_threads

from .conftest import SUBSCRIPTION, TOPIC, Server

ORDERED = PublisherOptions(enable_message_ordering=True)
# A batch waits for its messages, not for time.
FOR_EVER = 60.0


# ---- messages ----------------------------------------------------------------------------------


def test_a_published_message_is_delivered_with_its_data_attributes_and_ordering_key(
    emulator: Emulator,
) -> None:
    """Data, attributes and ordering key arrive unchanged."""
    with PublisherClient(endpoint=emulator.endpoint, publisher_options=ORDERED) as publisher:
        message_id = publisher.publish(
            TOPIC, b"data", "customer-1", origin="test", note=b"caf\xc3\xa9"
        ).result(10)
    (message,) = emulator.messages(TOPIC)
    assert message.message_id == message_id
    assert (message.data, message.ordering_key) == (b"data", "customer-1")
    assert dict(message.attributes) == {"origin": "test", "note": "café"}


@pytest.mark.parametrize(
    "message",
    [
        pubsub.PubsubMessage(data=b"data", attributes={"a": "1"}, ordering_key="k"),
        pubsub_v1.types.PubsubMessage(data=b"data", attributes={"a": "1"}, ordering_key="k"),
        official_types.PubsubMessage.pb(
            pubsub_v1.types.PubsubMessage(data=b"data", attributes={"a": "1"}, ordering_key="k")
        ),
    ],
    ids=["ours", "proto-plus", "official protobuf"],
)
def test_publish_accepts_a_pubsub_message_object_instead_of_data(
    emulator: Emulator, message: Any
) -> None:
    """Messages of the official client, too, alone and in lists."""
    with PublisherClient(endpoint=emulator.endpoint, publisher_options=ORDERED) as publisher:
        publisher.publish(TOPIC, message).result(10)
        publisher.publish_many(TOPIC, [message, b"plain"]).result(10)
    whole = [one for one in emulator.messages(TOPIC) if one.data == b"data"]
    assert [(one.ordering_key, dict(one.attributes)) for one in whole] == [("k", {"a": "1"})] * 2
    assert len(emulator.messages(TOPIC)) == 3


def test_publish_accepts_a_message_with_attributes_only(emulator: Emulator) -> None:
    """Pub/Sub requires data or attributes."""
    with PublisherClient(endpoint=emulator.endpoint) as publisher:
        publisher.publish(TOPIC, b"", kind="tombstone").result(10)
        with pytest.raises(ValueError, match="the message is empty; Pub/Sub requires data or"):
            publisher.publish(TOPIC, b"")
    assert [dict(one.attributes) for one in emulator.messages(TOPIC)] == [{"kind": "tombstone"}]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("text", r"data is 'text'; it must be bytes or a PubsubMessage; encode it: data\.encode"),
        (None, "data is None; it must be bytes or a PubsubMessage$"),
        (bytearray(b"data"), "it must be bytes or a PubsubMessage$"),
        (pubsub.Topic(name="t"), "it must be bytes or a PubsubMessage$"),
    ],
)
def test_publish_refuses_data_that_is_not_bytes_and_names_the_accepted_types(
    server: Server, data: Any, text: str
) -> None:
    """The error names the accepted types."""
    with pytest.raises(TypeError, match=text):
        server.connect().publish(TOPIC, data)
    with pytest.raises(TypeError, match=text):
        server.connect().publish_many(TOPIC, [b"good", data])


def test_publish_refuses_extra_attributes_with_a_pubsub_message_object(server: Server) -> None:
    """The message has its own; which of the two would count is not clear."""
    with pytest.raises(ValueError, match="has its own ordering key and attributes; set"):
        server.connect().publish(TOPIC, pubsub.PubsubMessage(data=b"x"), a="1")


def test_publish_with_an_ordering_key_requires_enable_message_ordering(server: Server) -> None:
    """As in the official client: without it the order would not be kept."""
    with pytest.raises(ValueError, match="enable_message_ordering=True"):
        server.connect().publish(TOPIC, b"x", "key")
    with pytest.raises(ValueError, match="enable_message_ordering=True"):
        server.connect().resume_publish(TOPIC, "key")
    with pytest.raises(TypeError, match="ordering_key is 7; it must be a str"):
        server.connect(publisher_options=ORDERED).publish(TOPIC, b"x", 7)  # type: ignore[arg-type]


def test_publishing_a_message_above_the_size_limit_fails_at_once(server: Server) -> None:
    """The message does not reach the server, and spoils no request."""
    publisher = server.connect()
    with pytest.raises(MessageTooLargeError, match="the server accepts 10,000,000"):
        publisher.publish(TOPIC, b"x" * 10_000_000)
    with pytest.raises(MessageTooLargeError):
        publisher.publish_many(TOPIC, [b"good", b"x" * 10_000_000])
    assert publisher.publish(TOPIC, b"good").result(10) == "1"
    assert server.requests == [[b"good"]]


# ---- batches -----------------------------------------------------------------------------------


def test_published_messages_share_publish_requests_of_up_to_max_messages(server: Server) -> None:
    """A request has up to max_messages, and each message gets its own ID."""
    publisher = server.connect(BatchSettings(max_messages=10, max_latency=FOR_EVER))
    data = [b"%d" % number for number in range(25)]
    futures = [publisher.publish(TOPIC, one) for one in data]
    publisher.stop()
    ids = [future.result(10) for future in futures]
    assert sorted(map(len, server.requests)) == [5, 10, 10]
    assert sorted(one for request in server.requests for one in request) == sorted(data)
    assert len(set(ids)) == 25


def test_an_incomplete_publish_batch_is_sent_after_max_latency(server: Server) -> None:
    """Nobody waits for the future, and no message follows."""
    server.connect(BatchSettings(max_latency=0.05)).publish(TOPIC, b"x")
    server.wait_for_calls(1)
    assert server.requests == [[b"x"]]


def test_waiting_for_a_publish_future_sends_its_batch_at_once(server: Server) -> None:
    """The caller does not wait for the latency of the batch."""
    publisher = server.connect(BatchSettings(max_latency=FOR_EVER))
    assert publisher.publish(TOPIC, b"x").result(10) == "1"
    assert publisher.publish(TOPIC, b"x").exception(10) is None


def test_publish_requests_of_large_messages_stay_within_the_servers_size_limits(
    emulator: Emulator,
) -> None:
    """Settings above the limits of the server have no effect."""
    settings = BatchSettings(max_bytes=100_000_000, max_messages=100_000, max_latency=FOR_EVER)
    with PublisherClient(settings, endpoint=emulator.endpoint) as publisher:
        futures = [publisher.publish(TOPIC, b"x" * 3_000_000) for _ in range(7)]
        futures += [publisher.publish(TOPIC, b"y") for _ in range(2500)]
        many = publisher.publish_many(TOPIC, [b"z" * 4_000_000] * 5)
        assert len({future.result(30) for future in futures} | set(many.result(30))) == 2512
    assert len(emulator.messages(TOPIC)) == 2512


def test_the_result_of_publish_many_is_the_message_ids_in_the_order_of_messages(
    emulator: Emulator,
) -> None:
    """Keys may divide the messages into several requests."""
    messages = [
        pubsub.PubsubMessage(
            data=b"%d" % number, ordering_key=f"k{number % 3}" if number % 4 else ""
        )
        for number in range(50)
    ]
    with PublisherClient(endpoint=emulator.endpoint, publisher_options=ORDERED) as publisher:
        ids = publisher.publish_many(TOPIC, messages).result(10)
        assert publisher.publish_many(TOPIC, []).result(10) == []
    by_id = {message.message_id: message.data for message in emulator.messages(TOPIC)}
    assert [by_id[one] for one in ids] == [message.data for message in messages]


def test_the_error_of_a_partly_failed_publish_many_has_the_ids_of_the_published_messages(
    server: Server,
) -> None:
    """The error has the IDs of the others."""
    server.fail = [NotFound("gone"), None]
    publisher = server.connect(publisher_options=ORDERED)
    messages = [pubsub.PubsubMessage(data=b"x", ordering_key=key) for key in ("a", "b")]
    with pytest.raises(PublishError, match="1 of 2 messages are not confirmed: 404 gone") as caught:
        publisher.publish_many(TOPIC, messages).result(10)
    assert sorted(caught.value.message_ids, key=str) == ["1", None]


# ---- failures ----------------------------------------------------------------------------------


def test_publish_retries_a_transient_error_with_the_same_idempotency_key(server: Server) -> None:
    """The user does nothing."""
    server.fail = [Unavailable("away"), Unavailable("away")]
    publisher = server.connect()
    assert publisher.publish(TOPIC, b"x").result(10) == "1"
    keys = {call.metadata[IDEMPOTENCY_KEY] for call in server.calls}
    assert (len(server.calls), len(keys)) == (3, 1)
    assert publisher.statistics().retries == 2


def test_each_publish_request_has_its_own_idempotency_key(server: Server) -> None:
    """Each request also has the header by which Google routes it."""
    publisher, other = server.connect(), server.connect()
    for client in (publisher, publisher, other):
        client.publish(TOPIC, b"x").result(10)
    assert len({call.metadata[IDEMPOTENCY_KEY] for call in server.calls}) == 3
    assert {call.metadata["x-goog-request-params"] for call in server.calls} == {f"topic={TOPIC}"}


def test_a_permanent_error_fails_all_messages_of_a_publish_request(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged, because a program may never look at the futures."""
    server.fail = [InvalidArgument("bad")]
    publisher = server.connect(BatchSettings(max_messages=2))
    with caplog.at_level(logging.WARNING, "pullstream.publisher"):
        futures = [publisher.publish(TOPIC, b"x") for _ in range(2)]
        for future in futures:
            with pytest.raises(InvalidArgument, match="bad"):
                future.result(10)
    assert f"2 messages to {TOPIC} were not published (1 requests): 400 bad" in caplog.text
    assert publisher.statistics().failed == 2


def test_publish_without_retries_fails_with_the_first_error_of_the_server(server: Server) -> None:
    """The official client does the same."""
    server.fail = [Unavailable("away")]
    with pytest.raises(Unavailable):
        server.connect().publish(TOPIC, b"x", retry=None).result(10)


def test_each_attempt_of_a_publish_request_has_the_configured_timeout(server: Server) -> None:
    """The timeout is that of the call, or of the options."""
    publisher = server.connect(publisher_options=PublisherOptions(timeout=20))
    publisher.publish(TOPIC, b"x", timeout=7).result(10)
    publisher.publish(TOPIC, b"x").result(10)
    first, second = [call.time_remaining or 0.0 for call in server.calls]
    assert 5 < first < 7.5
    assert 15 < second < 20.5


# Retries without long pauses.
QUICK = PublisherOptions(
    retry=Retry(initial=0.01, maximum=0.01, timeout=30, predicate=is_transient)
)


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_retry_predicate_that_raises_ends_the_retries_of_a_publish_request(
    server: Server, caplog: pytest.LogCaptureFixture, error: type
) -> None:
    """The message has the error of its request, and the log names the predicate."""

    def broken(_: BaseException) -> bool:
        raise error

    server.fail.append(Unavailable("later"))
    future = server.connect().publish(TOPIC, b"x", retry=Retry(predicate=broken))
    with pytest.raises(Unavailable, match="later"):
        future.result(10)
    assert "predicate" in caplog.text


def test_the_users_retry_predicate_is_called_once_for_each_failed_publish_attempt(
    server: Server,
) -> None:
    asked = []

    def is_first(_: BaseException) -> bool:
        asked.append(1)
        return len(asked) == 1

    server.fail += [Unavailable("1"), Unavailable("2")]
    future = server.connect().publish(TOPIC, b"x", retry=Retry(predicate=is_first, initial=0.01))
    with pytest.raises(Unavailable, match="2"):
        future.result(10)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (["1"], "1 message IDs for 2 messages"),
        ([], "0 message IDs for 2 messages"),
        (["1", "2", "3"], "3 message IDs for 2 messages"),
        (["1", "1"], "message IDs that are empty or repeated for 2 messages"),
        (["1", ""], "message IDs that are empty or repeated for 2 messages"),
        (["", ""], "message IDs that are empty or repeated for 2 messages"),
    ],
)
@pytest.mark.parametrize(
    "publish",
    [
        lambda client: [client.publish(TOPIC, b"x") for _ in range(2)][1].result(10),
        lambda client: client.publish_many(TOPIC, [b"x", b"y"]).result(10),
        lambda client: TopicAdminClient.publish(client, TOPIC, [{"data": b"x"}, {"data": b"y"}]),
    ],
    ids=["publish", "publish_many", "TopicAdminClient.publish"],
)
def test_a_publish_fails_if_the_response_has_missing_or_invalid_message_ids(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    ids: list[str],
    text: str,
    publish: Callable[[Any], object],
) -> None:
    """A message is confirmed only with its own ID. It may be stored all the same."""
    monkeypatch.setattr(server, "_answer", lambda _: pubsub.PublishResponse(message_ids=ids))
    publisher = server.connect(BatchSettings(max_messages=2))
    with pytest.raises(PublishError, match=f"the server returned {text}") as raised:
        publish(publisher)
    assert raised.value.may_have_succeeded
    assert not str(raised.value).startswith("None")


class FirstAnswerDamaged(grpc.GenericRpcHandler):
    """Answers the first call with bytes that are no PublishResponse."""

    def __init__(self) -> None:
        right = pubsub.PublishResponse(message_ids=["1"]).SerializeToString()
        self._answers = itertools.chain([b"\xff\xff"], itertools.repeat(right))

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: next(self._answers))


@pytest.mark.parametrize("retry", [True, False])
def test_the_error_for_an_unparseable_publish_response_says_the_message_may_be_stored(
    *, retry: bool
) -> None:
    """The server has answered, so the message may be stored. The call is repeated."""
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((FirstAnswerDamaged(),))
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    options = QUICK if retry else PublisherOptions(retry=None)
    with PublisherClient(publisher_options=options, endpoint=endpoint) as publisher:
        future = publisher.publish(TOPIC, b"x")
        if retry:
            assert future.result(10) == "1"
        else:
            with pytest.raises(Internal, match="the answer to Publish cannot be parsed") as raised:
                future.result(10)
            assert raised.value.may_have_succeeded
    server.stop(None).wait()


def test_a_publish_error_after_a_lost_reply_says_that_it_may_have_succeeded(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The reply was lost. The last error alone would mean that nothing is stored."""
    server.fail = [Unavailable("Socket closed"), Unavailable("again"), NotFound("gone")]
    publisher = server.connect(publisher_options=QUICK)
    text = r"gone \(an earlier attempt may have succeeded; it ended with: 503 Socket closed\)"
    with pytest.raises(NotFound, match=text) as raised:
        publisher.publish(TOPIC, b"x").result(10)
    assert raised.value.may_have_succeeded
    assert "an earlier attempt may have succeeded" in caplog.text
    server.fail = [Unavailable("Socket closed"), PermissionDenied("no")]
    with pytest.raises(PublishError, match="an earlier attempt may have succeeded") as of_many:
        publisher.publish_many(TOPIC, [b"x"]).result(10)
    assert of_many.value.may_have_succeeded


@pytest.mark.parametrize(
    "attempts",
    [
        [NotFound("gone")],
        [ResourceExhausted("quota"), NotFound("gone")],
        [Aborted("race"), ResourceExhausted("quota"), PermissionDenied("no")],
    ],
)
def test_a_publish_error_after_refused_attempts_does_not_say_it_may_have_succeeded(
    server: Server, attempts: list[Exception]
) -> None:
    """The server has answered each attempt."""
    server.fail = [*attempts]
    error = server.connect(publisher_options=QUICK).publish(TOPIC, b"x").exception(10)
    assert isinstance(error, RpcError)
    assert type(error) is type(attempts[-1])
    assert not error.may_have_succeeded
    assert "earlier" not in str(error)


def test_a_publish_error_without_a_connection_does_not_say_it_may_have_succeeded() -> None:
    """Nothing was sent in any attempt."""
    options = PublisherOptions(retry=Retry(initial=0.01, maximum=0.01, timeout=0.1))
    with PublisherClient((), options, endpoint="127.0.0.1:1") as publisher:
        error = publisher.publish(TOPIC, b"x").exception(10)
    assert isinstance(error, Unavailable)
    assert not error.may_have_succeeded
    assert "earlier" not in str(error)


def test_the_error_of_a_publish_without_an_answer_says_that_the_message_may_be_stored(
    server: Server,
) -> None:
    """The last attempt itself leaves it open."""
    server.fail = [Unavailable("Socket closed")]
    error = server.connect().publish(TOPIC, b"x", retry=None).exception(10)
    assert isinstance(error, Unavailable)
    assert error.may_have_succeeded


def test_a_publish_retry_after_a_lost_reply_causes_no_duplicate_on_pullstreams_broker(
    emulator: Emulator,
) -> None:
    """The repeated request gets the IDs of the first one."""
    emulator.faults.lose_reply("Publish", times=1)
    with PublisherClient(endpoint=emulator.endpoint) as publisher:
        message_id = publisher.publish(TOPIC, b"x", timeout=1).result(30)
        assert publisher.statistics().retries == 1
    assert [message.message_id for message in emulator.messages(TOPIC)] == [message_id]


# ---- ordering keys -----------------------------------------------------------------------------


def test_publish_retries_keep_the_order_of_an_ordering_key(server: Server) -> None:
    """A retried request comes before later ones."""
    server.fail = [None, Unavailable("away"), None, Unavailable("away")]
    publisher = server.connect(BatchSettings(max_messages=3), ORDERED)
    data = [b"%02d" % number for number in range(20)]
    futures = [publisher.publish(TOPIC, one, "k") for one in data]
    ids = [int(future.result(10)) for future in futures]
    assert ids == sorted(ids)
    assert publisher.statistics().retries == 2


def test_after_a_failed_publish_an_ordering_key_is_paused_until_resume_publish_is_called(
    server: Server,
) -> None:
    """Waiting messages of the key fail; other keys and messages continue."""
    server.fail = [NotFound("none")]
    server.gate.clear()
    publisher = server.connect(BatchSettings(max_messages=1), ORDERED)
    first = publisher.publish(TOPIC, b"1", "k")
    server.wait_for_calls(1)
    second = publisher.publish(TOPIC, b"2", "k")
    server.gate.set()
    with pytest.raises(NotFound):
        first.result(10)
    with pytest.raises(PublishToPausedOrderingKeyException, match="'k' is paused") as caught:
        second.result(10)
    assert caught.value.ordering_key == "k"
    with pytest.raises(PublishToPausedOrderingKeyException, match="call resume_publish"):
        publisher.publish(TOPIC, b"3", "k").result(10)
    message = pubsub.PubsubMessage(data=b"3", ordering_key="k")
    with pytest.raises(PublishError, match="1 of 1 messages are not confirmed"):
        publisher.publish_many(TOPIC, [message]).result(10)
    assert publisher.publish(TOPIC, b"other", "other").result(10)
    assert publisher.publish(TOPIC, b"none").result(10)
    publisher.resume_publish(TOPIC, "k")
    assert publisher.publish(TOPIC, b"4", "k").result(10)
    assert [b"2"] not in server.requests


# ---- wrong arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [None, b"topic", 5, ["topic"], {}, "t\udcff"])
@pytest.mark.parametrize(
    "call",
    [
        lambda publisher, topic: publisher.publish(topic, b"x"),
        lambda publisher, topic: publisher.publish(topic, b"x", a="1"),
        lambda publisher, topic: publisher.publish_many(topic, [b"x"]),
        lambda publisher, topic: publisher.resume_publish(topic, "k"),
    ],
)
def test_publish_refuses_an_invalid_topic_name_and_shows_it_in_the_error(
    server: Server, topic: Any, call: Callable[[PublisherClient, Any], object]
) -> None:
    """Nothing is published, and the client works on."""
    publisher = server.connect(publisher_options=PublisherOptions(enable_message_ordering=True))
    with pytest.raises((TypeError, ValueError), match=r"^topic is .*(the full name|UTF-8)"):
        call(publisher, topic)
    assert publisher.publish(TOPIC, b"y").result(10)
    assert server.requests == [[b"y"]]


@pytest.mark.parametrize("messages", [None, 5, b"data", "text"])
def test_publish_many_refuses_an_argument_that_is_not_a_list_of_messages(
    server: Server, messages: Any
) -> None:
    """Bytes are not a list of numbers."""
    with pytest.raises(TypeError, match=r"^messages is .*; it must be a list of messages"):
        server.connect().publish_many(TOPIC, messages)


# ---- limits of a message -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "attributes", "key"),
    [
        (b"", {}, ""),
        (b"x", {"goog_x": "a"}, ""),
        (b"x", {"googclient_schemaencoding": "JSON"}, ""),
        (b"x", {str(number): "a" for number in range(101)}, ""),
        (b"x", {"n" * 257: "a"}, ""),
        (b"x", {"a": "v" * 1025}, ""),
        (b"x", {"a": "\udcff"}, ""),
        (b"x", {}, "k" * 1025),
        (b"x", {}, "\udcff"),
        (b"x" * 10_000_000, {}, ""),
    ],
)
def test_a_message_that_the_broker_would_refuse_does_not_fail_other_messages_of_its_batch(
    emulator: Emulator, data: bytes, attributes: dict[str, str], key: str
) -> None:
    """The call of this message raises. The other messages of the batch are published."""
    settings = BatchSettings(max_latency=FOR_EVER)
    options = PublisherOptions(enable_message_ordering=True)
    with PublisherClient(settings, options, endpoint=emulator.endpoint) as publisher:
        good = [publisher.publish(TOPIC, b"first", key[:1] if key.isascii() else "")]
        with pytest.raises(ValueError, match=r"\w"):
            publisher.publish(TOPIC, data, key, **attributes)
        good.append(publisher.publish(TOPIC, b"second", key[:1] if key.isascii() else ""))
        assert all(future.result(10) for future in good)
    assert [message.data for message in emulator.messages(TOPIC)] == [b"first", b"second"]


def test_closing_the_transport_of_a_publisher_closes_the_publisher(server: Server) -> None:
    """Programs for the official client close its connection in this way."""
    publisher = server.connect(BatchSettings(max_latency=FOR_EVER))
    future = publisher.publish(TOPIC, b"x")
    publisher.transport.close()
    assert future.result(0) == "1"
    with pytest.raises(PublisherClosed):
        publisher.publish(TOPIC, b"x")
    subscriber = SubscriberClient(endpoint=server.endpoint)
    subscriber.transport.close()
    assert subscriber.closed


# ---- flow control ------------------------------------------------------------------------------


def limited(behavior: LimitExceededBehavior, messages: int = 2) -> PublisherOptions:
    return PublisherOptions(flow_control=PublishFlowControl(messages, 1_000_000, behavior))


def test_publish_blocks_at_the_flow_control_limit_until_a_message_is_confirmed(
    server: Server,
) -> None:
    """The next message enters when one is confirmed; none waits for its latency."""
    server.gate.clear()
    publisher = server.connect(
        BatchSettings(max_latency=FOR_EVER), limited(LimitExceededBehavior.BLOCK)
    )
    for _ in range(2):
        publisher.publish(TOPIC, b"x")
    blocked = threading.Thread(target=lambda: publisher.publish(TOPIC, b"y"))
    blocked.start()
    server.wait_for_calls(1)
    assert blocked.is_alive()
    server.gate.set()
    blocked.join(10)
    assert not blocked.is_alive()
    publisher.close(10)
    assert publisher.statistics().published == 3


def test_with_behavior_error_a_publish_at_the_flow_control_limit_fails_its_future(
    server: Server,
) -> None:
    """The behavior is ERROR. The room comes back with the answers."""
    server.gate.clear()
    publisher = server.connect(BatchSettings(max_messages=1), limited(LimitExceededBehavior.ERROR))
    futures = [publisher.publish(TOPIC, b"x") for _ in range(3)]
    with pytest.raises(FlowControlLimitError, match="flow control allows 2"):
        futures[2].result(0)
    server.gate.set()
    for future in futures[:2]:
        future.result(10)
    assert publisher.publish(TOPIC, b"x").result(10)


def test_a_publish_blocked_by_flow_control_raises_if_the_publisher_closes(server: Server) -> None:
    """The publish raises PublisherClosed and does not wait for ever."""
    server.gate.clear()
    publisher = server.connect(BatchSettings(max_messages=1), limited(LimitExceededBehavior.BLOCK))
    first = [publisher.publish(TOPIC, b"x") for _ in range(2)]
    errors: list[BaseException] = []
    began = threading.Event()

    def publish() -> None:
        began.set()
        try:
            publisher.publish(TOPIC, b"y")
        except PublisherClosed as error:
            errors.append(error)

    with on_threads(publish):
        assert began.wait(10)
        server.wait_for_calls(2)
        publisher.close(0.1)
    assert len(errors) == 1
    with pytest.raises(PublisherClosed, match="0 messages were not sent, and 2 were sent but not"):
        first[0].result(0)


def test_closing_the_publisher_sends_a_message_whose_publish_waits_for_flow_control(
    server: Server,
) -> None:
    """The message came before the close, so it is sent when the first message makes room."""
    server.gate.clear()
    publisher = server.connect(
        BatchSettings(max_latency=FOR_EVER), limited(LimitExceededBehavior.BLOCK, messages=1)
    )
    publisher.publish(TOPIC, b"x")
    futures: list[PublishFuture] = []
    with on_threads(lambda: futures.append(publisher.publish(TOPIC, b"y"))):
        # Its publish sends the first message, and then waits.
        server.wait_for_calls(1)
        closing = threading.Thread(target=publisher.close)
        closing.start()
        while not publisher.closed:
            pass
        server.gate.set()
        closing.join(10)
    assert futures[0].result(0) == "2"


def test_a_publish_interrupted_by_ctrl_c_uses_no_room_in_publisher_flow_control(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the wait, and the message is not published."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    publisher = server.connect(
        BatchSettings(max_messages=1), limited(LimitExceededBehavior.BLOCK, 1)
    )
    server.gate.clear()
    first = publisher.publish(TOPIC, b"first")
    with monkeypatch.context() as interrupting:
        interrupting.setattr(Latch, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            publisher.publish(TOPIC, b"second")
    server.gate.set()
    first.result(10)
    assert publisher.publish(TOPIC, b"third").result(10)
    assert server.requests == [[b"first"], [b"third"]]


def test_a_message_published_while_freezegun_stops_the_time_is_sent_when_the_freeze_ends(
    server: Server,
) -> None:
    """Nobody waits for the future, which would send the message at once."""
    publisher = server.connect(BatchSettings(max_latency=0.05))
    publisher.publish(TOPIC, b"before").result(10)
    with freeze_time("2030-01-01"):
        publisher.publish(TOPIC, b"frozen")
    server.wait_for_calls(2)
    assert server.requests == [[b"before"], [b"frozen"]]


def test_a_failed_message_no_longer_counts_towards_publisher_flow_control(server: Server) -> None:
    """A failed message does not wait any more."""
    server.fail = [NotFound("none")]
    options = limited(LimitExceededBehavior.ERROR, messages=1)._replace(
        enable_message_ordering=True
    )
    publisher = server.connect(publisher_options=options)
    assert publisher.publish(TOPIC, b"x", "k").exception(10)
    paused = publisher.publish(TOPIC, b"x", "k").exception(10)
    assert isinstance(paused, PublishToPausedOrderingKeyException)
    assert publisher.publish(TOPIC, b"x").result(10)


@pytest.mark.parametrize("errors", [[], [NotFound("none")]], ids=["published", "failed"])
def test_a_publish_future_gets_its_result_after_flow_control_has_made_room(
    server: Server, monkeypatch: pytest.MonkeyPatch, errors: list[RpcError]
) -> None:
    """Otherwise the next publish could be refused, with behavior ERROR."""
    server.gate.clear()
    server.fail = [*errors]
    done: list[bool] = []
    leave = PublishGauge.leave

    def noted(gauge: PublishGauge, messages: int, size: int) -> list[Callable[[], object]]:
        done.append(future.done())
        return leave(gauge, messages, size)

    monkeypatch.setattr(PublishGauge, "leave", noted)
    options = limited(LimitExceededBehavior.ERROR, messages=1)
    publisher = server.connect(BatchSettings(max_messages=1), options)
    future = publisher.publish(TOPIC, b"x")
    server.gate.set()
    assert (future.exception(10) is None) is not bool(errors)
    assert done == [False]


# ---- hedging and compression -------------------------------------------------------------------


def test_with_hedging_a_slow_publish_request_is_sent_a_second_time(server: Server) -> None:
    """The first success counts, and both requests have one idempotency key."""
    server.gate.clear()
    options = PublisherOptions(hedging=PublishHedging(delay=0.1))
    publisher = server.connect(publisher_options=options)
    future = publisher.publish(TOPIC, b"x")
    server.wait_for_calls(2)
    server.gate.set()
    assert future.result(10)
    assert len({call.metadata[IDEMPOTENCY_KEY] for call in server.calls}) == 1
    assert publisher.statistics().hedges >= 1
    operations = [
        pubsub.PubsubClientTelemetry.FromString(
            base64.b64decode(call.metadata[TELEMETRY_HEADER])
        ).publish_operation
        for call in server.calls[:2]
    ]
    assert [one.hedged_attempt_count for one in operations] == [0, 1]
    assert operations[0].publish_start_time == operations[1].publish_start_time
    assert abs(operations[0].publish_start_time.ToNanoseconds() / 1e9 - SYSTEM_CLOCK.now()) < 60


def test_publish_hedging_causes_no_duplicate_message_on_pullstreams_broker(
    emulator: Emulator,
) -> None:
    """The broker knows the idempotency key."""
    emulator.faults.delay("Publish", 1.0, times=1)
    options = PublisherOptions(hedging=PublishHedging(delay=0.1))
    with PublisherClient(endpoint=emulator.endpoint, publisher_options=options) as publisher:
        hedged = publisher.publish(TOPIC, b"x").result(10)
        # More if its answer takes longer than the delay.
        assert publisher.statistics().hedges >= 1
    emulator.faults.clear()
    assert [message.message_id for message in emulator.messages(TOPIC)] == [hedged]


def test_publish_requests_above_the_configured_size_are_compressed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller requests are sent as they are."""
    options = PublisherOptions(enable_compression=True, compression_bytes_threshold=1000)
    publisher = server.connect(publisher_options=options)
    found: list[Any] = []
    stub = publisher._rpcs.stub("Publish", serialized=True)

    class Stub:
        def future(self, request: bytes, **options: Any) -> Any:
            found.append((len(request) >= 1000, options["compression"]))
            return stub.future(request, **options)

    monkeypatch.setattr(publisher._rpcs, "stub", lambda *_, **__: Stub())
    publisher.publish(TOPIC, b"x").result(10)
    publisher.publish(TOPIC, b"x" * 2000).result(10)
    assert found == [(False, None), (True, grpc.Compression.Gzip)]


# ---- the end -----------------------------------------------------------------------------------


def test_closing_the_publisher_sends_all_messages_and_later_publishes_are_refused(
    server: Server,
) -> None:
    """Later messages are refused."""
    publisher = server.connect(BatchSettings(max_latency=FOR_EVER))
    futures = [publisher.publish(TOPIC, b"x") for _ in range(3)]
    publisher.close()
    assert all(future.done() for future in futures)
    assert len(server.requests) == 1
    assert publisher.closed
    with pytest.raises(PublisherClosed, match="make a new one"):
        publisher.publish(TOPIC, b"x")
    with pytest.raises(RuntimeError):
        publisher.publish_many(TOPIC, [b"x"])
    publisher.close()


def test_stopping_the_publisher_sends_all_messages_without_waiting_for_the_answers(
    server: Server,
) -> None:
    """A second stop is an error, as in the official client."""
    server.gate.clear()
    publisher = server.connect(BatchSettings(max_latency=FOR_EVER))
    future = publisher.publish(TOPIC, b"x")
    publisher.stop()
    server.wait_for_calls(1)
    assert not future.done()
    server.gate.set()
    assert future.result(10)
    with pytest.raises(RuntimeError):
        publisher.stop()


def test_a_publisher_close_that_times_out_fails_and_logs_the_unsent_messages(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Every future has a result afterwards, and the log has the number."""
    server.gate.clear()
    publisher = server.connect(BatchSettings(max_messages=1), ORDERED)
    futures = [publisher.publish(TOPIC, b"x", "k") for _ in range(3)]
    server.wait_for_calls(1)
    with caplog.at_level(logging.WARNING, "pullstream.publisher"):
        publisher.close(0.1)
    for future in futures:
        with pytest.raises(PublisherClosed, match="2 messages were not sent, and 1 were sent"):
            future.result(0)
    assert "2 messages were not sent" in caplog.text
    assert publisher.statistics().failed == 3
    assert publisher.statistics().waiting == 0


def test_closing_the_publisher_without_a_server_fails_the_futures_of_its_messages() -> None:
    """The network may be away."""
    publisher = PublisherClient(endpoint="127.0.0.1:1")
    future = publisher.publish(TOPIC, b"x")
    publisher.close(0.2)
    assert isinstance(future.exception(0), PublisherClosed)


def test_the_publisher_refuses_a_close_timeout_of_zero(server: Server) -> None:
    """The error names the allowed values."""
    with pytest.raises(ValueError, match="timeout is 0; it must be above 0 seconds, or None"):
        server.connect().close(0)


def test_closing_the_publisher_does_not_close_a_channel_passed_by_the_user(server: Server) -> None:
    """The channel belongs to the user."""
    with grpc.insecure_channel(server.endpoint) as channel:
        for _ in range(2):
            with PublisherClient(channel=channel) as publisher:
                publisher.publish(TOPIC, b"x").result(10)


def test_futures_of_messages_published_on_a_closed_channel_have_an_error(server: Server) -> None:
    """The user may have closed the channel before the publish."""
    channel = grpc.insecure_channel(server.endpoint)
    with PublisherClient(channel=channel) as publisher:
        channel.close()
        assert publisher.publish(TOPIC, b"x").exception(10) is not None


def test_done_callbacks_of_publish_futures_may_publish_and_wait_for_results(server: Server) -> None:
    """Done callbacks run on a separate thread, and not on gRPC's."""
    publisher = server.connect()
    results: list[str] = []
    done = threading.Event()

    def again(_: Any) -> None:
        results.append(publisher.publish(TOPIC, b"second").result(10))
        done.set()

    publisher.publish(TOPIC, b"first").add_done_callback(again)
    assert done.wait(10)
    assert results == ["2"]


def test_closing_the_publisher_waits_for_the_done_callbacks_of_its_futures(server: Server) -> None:
    """A program that ends after the close has seen all results."""
    publisher = server.connect()
    seen: list[str] = []
    publisher.publish(TOPIC, b"x").add_done_callback(lambda future: seen.append(future.result()))
    publisher.close()
    assert seen == ["1"]


def test_a_second_close_of_the_publisher_has_nothing_to_wait_for_and_ends_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the program closes every client once more."""
    monkeypatch.setattr(sender, "_CALLBACKS_TIMEOUT", 3600.0)
    publisher = server.connect()
    publisher.publish(TOPIC, b"x").add_done_callback(lambda future: None)
    publisher.close()
    run_on_threads(publisher.close)


def test_the_done_callback_of_a_publish_future_may_close_the_publisher_without_a_deadlock(
    server: Server,
) -> None:
    """The close does not wait for the callback that called it."""
    publisher = server.connect()
    closed = threading.Event()

    def close(_: Any) -> None:
        publisher.close(10)
        closed.set()

    publisher.publish(TOPIC, b"x").add_done_callback(close)
    assert closed.wait(10)


# ---- observation, administration and other clients ---------------------------------------------


class Recorder(PublisherHooks):
    """Keeps all events."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.statistics: Callable[[], PublisherStatistics] = PublisherStatistics

    def started(self, statistics: Callable[[], PublisherStatistics]) -> None:
        self.statistics = statistics

    def published(self, topic: str, messages: int, seconds: float) -> None:
        self.events.append(("published", topic, messages, seconds >= 0))

    def failed(self, topic: str, messages: int, error: BaseException) -> None:
        self.events.append(("failed", topic, messages, str(error)))

    def request_done(
        self, topic: str, messages: int, size: int, seconds: float, error: BaseException | None
    ) -> None:
        self.events.append(("request", messages, size > 0, seconds >= 0, error and str(error)))


def test_publisher_hooks_are_called_for_each_publish_attempt_and_result(server: Server) -> None:
    """Each attempt is a request; each batch has one result."""
    recorder = Recorder()
    publisher = server.connect(hooks=recorder)
    server.fail = [Unavailable("away"), None, NotFound("none")]
    publisher.publish(TOPIC, b"x").result(10)
    assert publisher.publish(TOPIC, b"x").exception(10)
    publisher.close()
    assert recorder.events == [
        ("request", 1, True, True, "503 away"),
        ("request", 1, True, True, None),
        ("published", TOPIC, 1, True),
        ("request", 1, True, True, "404 none"),
        ("failed", TOPIC, 1, "404 none"),
    ]
    assert recorder.statistics() == publisher.statistics()
    assert publisher.statistics() == PublisherStatistics(
        published=1, failed=1, requests=3, retries=1, bytes=len(TOPIC) + 7
    )


def test_the_publisher_refuses_hooks_of_another_class_than_publisher_hooks(server: Server) -> None:
    """The error names the class."""
    with pytest.raises(TypeError, match="it must be a PublisherHooks object or a list of them"):
        server.connect(hooks=pullstream.Hooks())


def test_the_publisher_client_creates_reads_and_deletes_topics(emulator: Emulator) -> None:
    """The official publisher has the same methods."""
    with PublisherClient(endpoint=emulator.endpoint) as publisher:
        topic = publisher.topic_path("project-1", "invoices")
        publisher.create_topic(name=topic)
        assert publisher.get_topic(topic=topic).name == topic
        publisher.publish(topic, b"x").result(10)
        publisher.delete_topic(topic=topic)
        with pytest.raises(NotFound):
            publisher.publish(topic, b"x").result(10)


def test_the_publisher_accepts_the_official_clients_settings(emulator: Emulator) -> None:
    """A program may keep its settings when it changes the client."""
    types = pubsub_v1.types
    publisher = PublisherClient(
        types.BatchSettings(max_messages=5),
        types.PublisherOptions(enable_message_ordering=True),
        client_options={"api_endpoint": emulator.endpoint},
    )
    with publisher:
        assert publisher.publish(TOPIC, b"x", "k").result(10)


def test_messages_published_with_an_ordering_key_reach_the_subscriber_in_order(
    emulator: Emulator,
) -> None:
    """The messages go from `publish` to a callback."""
    received: dict[str, list[int]] = {}
    done = threading.Event()

    def callback(message: pullstream.Message) -> None:
        received.setdefault(message.ordering_key, []).append(int(message.data))
        message.ack()
        if sum(map(len, received.values())) == 200:
            done.set()

    with (
        PublisherClient(endpoint=emulator.endpoint, publisher_options=ORDERED) as publisher,
        SubscriberClient(endpoint=emulator.endpoint) as subscriber,
    ):
        subscriber.subscribe(SUBSCRIPTION, callback)
        for number in range(200):
            publisher.publish(TOPIC, b"%d" % number, f"k{number % 5}")
        assert done.wait(30)
    assert received == {f"k{key}": list(range(key, 200, 5)) for key in range(5)}
