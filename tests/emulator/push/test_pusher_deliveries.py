"""Push delivery end to end: a broker on one side, an HTTP server on the other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import FailedPrecondition, InvalidArgument
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, update_request
from tests.emulator.push_endpoint import Endpoint, Pushed
from tests.emulator.wire import Wire, data_of
from tests.threads import on_threads


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


def to(url: str, **config: Any) -> pubsub.PushConfig:
    return pubsub.PushConfig(push_endpoint=url, **config)


def modify(wire: Wire, config: pubsub.PushConfig) -> None:
    request = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=config)
    wire.call("ModifyPushConfig", request)


def await_acknowledged(emulator: Emulator) -> None:
    """Wait until the broker has processed the endpoint's answer."""
    while emulator.backlog(SUBSCRIPTION):
        pass


def await_retry(endpoint: Endpoint, clock: ManualClock) -> Pushed:
    """Advance the clock until the next request arrives."""
    while endpoint.is_quiet:
        clock.advance(0.1)
    return endpoint.next()


# ---- requests ------------------------------------------------------------------------------------


def test_a_pushed_message_reaches_the_endpoint_and_its_success_status_acknowledges_it(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """The body is Google's JSON."""
    wire.create_with("a", push_config=to(endpoint.url("/orders?token=1")))
    pushed = endpoint.next()
    assert pushed.path == "/orders"
    assert pushed.data == "a"
    assert pushed.json["subscription"] == SUBSCRIPTION
    assert pushed.headers["Content-Type"] == "application/json"
    assert int(pushed.headers["Content-Length"]) == len(pushed.body)
    await_acknowledged(emulator)


def test_an_unwrapped_push_request_posts_the_message_data_as_body(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """The headers have the metadata on request."""
    wire.create_with("a", push_config=to(endpoint.url(), no_wrapper={"write_metadata": True}))
    pushed = endpoint.next()
    assert pushed.body == b"a"
    assert pushed.headers["x-goog-pubsub-message-id"] == "1"
    assert pushed.headers["x-goog-pubsub-subscription-name"] == SUBSCRIPTION
    await_acknowledged(emulator)


def test_message_attributes_cannot_replace_push_headers_that_identify_the_sender(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """Only the broker and proxies set headers that identify the sender. Other headers are sent."""
    wire.create_with("plain", push_config=to(endpoint.url(), no_wrapper={"write_metadata": True}))
    plain = endpoint.next()
    forged = (
        *("Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Expect"),
        *("Host", "Content-Length", "User-Agent", "Via", "Forwarded", "X-Real-IP"),
        *("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Anything"),
        *("Authorization", "Proxy-Authorization", "Proxy-Connection", "Cookie", "Set-Cookie"),
        *("X-Goog-Authenticated-User-Email", "X-Goog-Pubsub-Message-Id", "X-Api-Key"),
    )
    attributes = {
        variant: "forged"
        for name in forged
        for variant in (name, name.lower(), name.upper().replace("-", "_"))
    }
    request = pubsub.PublishRequest(topic=TOPIC)
    request.messages.add(data=b"plain", attributes={"Content-Language": "de", "x-mine": "1"})
    request.messages.add(data=b"plain", attributes=attributes)
    wire.call("Publish", request)
    wanted = endpoint.next()
    assert (wanted.headers.pop("Content-Language"), wanted.headers.pop("x-mine")) == ("de", "1")
    for pushed in (wanted, endpoint.next()):
        assert pushed.body == b"plain"
        assert pushed.headers.keys() == plain.headers.keys()
        assert "forged" not in pushed.headers.values()
    await_acknowledged(emulator)


def test_messages_of_an_ordering_key_arrive_in_order_at_a_push_endpoint(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """Each message is sent after the answer to the previous one."""
    wire.create(push_config=to(endpoint.url()), enable_message_ordering=True)
    sent = [str(number) for number in range(50)]
    wire.publish(*sent, key="k")
    assert [endpoint.next().data for _ in sent] == sent
    await_acknowledged(emulator)


def test_all_messages_of_a_large_backlog_are_pushed_to_the_endpoint(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """Each message is sent once if there are no failures."""
    wire.create(push_config=to(endpoint.url()))
    sent = [str(number) for number in range(500)]
    wire.publish(*sent)
    assert sorted((endpoint.next().data for _ in sent), key=int) == sent
    await_acknowledged(emulator)
    assert endpoint.is_quiet


# ---- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [102, 200, 201, 202, 204])
def test_an_http_success_status_of_the_endpoint_acknowledges_the_pushed_message(
    emulator: Emulator, wire: Wire, endpoint: Endpoint, status: int
) -> None:
    """The production service has the same list."""
    endpoint.answer = lambda pushed: status
    wire.create_with("a", "b", "c", push_config=to(endpoint.url()))
    assert {endpoint.next().data for _ in range(3)} == {"a", "b", "c"}
    await_acknowledged(emulator)


@pytest.mark.parametrize("status", [203, 206, 301, 307, 400, 401, 404, 429, 500, 503])
def test_an_http_status_of_the_endpoint_other_than_success_fails_the_push(
    emulator: Emulator, wire: Wire, endpoint: Endpoint, clock: ManualClock, status: int
) -> None:
    """The message is redelivered. Redirects are not followed."""
    statuses = iter([status, 200])
    endpoint.answer = lambda pushed: next(statuses)
    wire.create_with("a", push_config=to(endpoint.url()))
    assert endpoint.next().path == "/push"
    again = await_retry(endpoint, clock)
    assert (again.path, again.data) == ("/push", "a")
    await_acknowledged(emulator)


def test_an_unanswered_push_request_times_out_at_the_ack_deadline_of_the_broker_clock(
    emulator: Emulator, wire: Wire, endpoint: Endpoint, clock: ManualClock
) -> None:
    """The deadline is on the broker's clock."""
    statuses = iter([0, 200])
    endpoint.answer = lambda pushed: next(statuses)
    wire.create_with("a", push_config=to(endpoint.url()), ack_deadline_seconds=600)
    assert endpoint.next().data == "a"
    clock.advance(599.9)
    assert endpoint.is_quiet
    assert emulator.backlog(SUBSCRIPTION) == 1
    assert await_retry(endpoint, clock).data == "a"
    await_acknowledged(emulator)


def test_a_push_endpoint_that_starts_late_receives_the_messages_published_before_its_start(
    emulator: Emulator, wire: Wire, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """First nothing listens, then a server hangs up or speaks no HTTP, then the endpoint starts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    wire.create_with("a", push_config=to(f"http://127.0.0.1:{port}/push"))
    with socket.create_server(("127.0.0.1", port)) as listener:
        came = threading.Event()

        def talk_nonsense() -> None:
            for words in (b"", b"220 mail.example ESMTP\r\n"):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(words)
            came.set()

        with on_threads(talk_nonsense):
            while not came.is_set():
                clock.advance(1)
    assert emulator.backlog(SUBSCRIPTION) == 1
    with Endpoint() as endpoint:
        modify(wire, to(endpoint.url()))
        assert await_retry(endpoint, clock).data == "a"
        await_acknowledged(emulator)
    # One warning reports the outage. The failures are not errors of the broker.
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# ---- settings ------------------------------------------------------------------------------------


def test_a_subscription_can_be_changed_between_push_and_pull_at_run_time(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """Both ModifyPushConfig and an update work. A pull is refused while there is an endpoint."""
    wire.create_with("a")
    pull = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
    modify(wire, to(endpoint.url("/first")))
    assert endpoint.next().path == "/first"
    await_acknowledged(emulator)
    refused = wire.failure("Pull", pull)
    assert isinstance(refused, FailedPrecondition)
    assert refused.message == "This method is not supported for this subscription type."
    wire.update(push_config=to(endpoint.url("/second")))
    wire.publish("b")
    assert endpoint.next().path == "/second"
    await_acknowledged(emulator)
    modify(wire, pubsub.PushConfig())
    wire.publish("c")
    assert data_of(wire.pull()) == ["c"]
    assert endpoint.is_quiet


@pytest.mark.parametrize(
    "url",
    [
        "orders",
        "ftp://127.0.0.1/x",
        "http://",
        "http:///x",
        "http://a:99999/",
        "http://a b/",
        "http://a/\n",
    ],
)
def test_calls_that_set_a_push_endpoint_that_is_no_url_are_refused(wire: Wire, url: str) -> None:
    """Every call refuses it, and nothing changes."""
    wire.create()
    before = wire.call("GetSubscription", pubsub.GetSubscriptionRequest(subscription=SUBSCRIPTION))
    config = to(url)
    update = update_request(push_config=config)
    other = pubsub.Subscription(name=f"{SUBSCRIPTION}-2", topic=before.topic, push_config=config)
    change = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=config)
    for method, request in (
        ("CreateSubscription", other),
        ("UpdateSubscription", update),
        ("ModifyPushConfig", change),
    ):
        refused = wire.failure(method, request)
        assert isinstance(refused, InvalidArgument)
        assert refused.message.startswith(f"Invalid push endpoint given (endpoint={url}).")
    listed = wire.call(
        "ListSubscriptions", pubsub.ListSubscriptionsRequest(project="projects/test")
    )
    assert list(listed.subscriptions) == [before]


def test_calls_that_set_a_push_config_of_unknown_x_goog_version_are_refused(
    wire: Wire,
) -> None:
    """The version is an attribute that formerly selected the envelope."""
    wire.create()
    config = to("http://127.0.0.1:1/", attributes={"x-goog-version": "v3"})
    request = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=config)
    refused = wire.failure("ModifyPushConfig", request)
    assert isinstance(refused, InvalidArgument)
    assert refused.message == "Invalid push endpoint version given in push config (version=v3)."


# ---- life cycle of the broker --------------------------------------------------------------------


def test_messages_whose_push_was_unanswered_at_a_broker_stop_are_pushed_after_a_restart(
    clock: ManualClock, endpoint: Endpoint
) -> None:
    """The next broker with this engine pushes them."""
    endpoint.answer = lambda pushed: 0
    with Emulator(clock=clock) as first, Wire(first.endpoint) as wire:
        wire.create_with("a", push_config=to(endpoint.url()))
        assert endpoint.next().data == "a"
    endpoint.answer = lambda pushed: 200
    with Emulator(clock=clock, broker=first.broker) as second:
        assert endpoint.next().data == "a"
        await_acknowledged(second)


def test_a_failed_push_is_repeated_after_a_pause_on_the_real_clock(endpoint: Endpoint) -> None:
    """A timer of the broker ends the pause without any call."""
    statuses = iter([500, 200])
    endpoint.answer = lambda pushed: next(statuses)
    with Emulator() as emulator, Wire(emulator.endpoint) as wire:
        wire.create_with("a", push_config=to(endpoint.url()))
        assert [endpoint.next().data for _ in range(2)] == ["a", "a"]
        await_acknowledged(emulator)
