"""Push delivery end to end: a broker on one side, an HTTP server on the other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from emulator import Emulator
from protocol.clock import ManualClock
from protocol.errors import FailedPrecondition, InvalidArgument, RpcError, from_rpc_error
from protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION
from tests.emulator.push_endpoint import Endpoint, Pushed
from tests.emulator.wire import Wire, data_of


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


def to(url: str, **config: Any) -> pubsub.PushConfig:
    return pubsub.PushConfig(push_endpoint=url, **config)


def modify(wire: Wire, config: pubsub.PushConfig) -> None:
    request = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=config)
    wire.call("ModifyPushConfig", request)


def failure(wire: Wire, method: str, request: Any) -> RpcError:
    error = wire.start(method, request).exception()
    assert error is not None, f"{method} succeeded"
    return from_rpc_error(error)


def await_acknowledged(emulator: Emulator) -> None:
    """The endpoint has answered; return when the broker has heard of it."""
    while emulator.backlog(SUBSCRIPTION):
        pass


def await_retry(endpoint: Endpoint, clock: ManualClock) -> Pushed:
    """Let time pass until the next request is there."""
    while endpoint.is_quiet:
        clock.advance(0.1)
    return endpoint.next()


# ---- what arrives --------------------------------------------------------------------------------


def test_a_message_is_posted_and_its_answer_acknowledges_it(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """In Google's JSON."""
    wire.create(push_config=to(endpoint.url("/orders?token=1")))
    wire.publish("a")
    pushed = endpoint.next()
    assert pushed.path == "/orders"
    assert pushed.data == "a"
    assert pushed.json["subscription"] == SUBSCRIPTION
    assert pushed.headers["Content-Type"] == "application/json"
    assert int(pushed.headers["Content-Length"]) == len(pushed.body)
    await_acknowledged(emulator)


def test_without_wrapper_the_data_is_posted(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """With metadata in headers, if asked for."""
    wire.create(push_config=to(endpoint.url(), no_wrapper={"write_metadata": True}))
    wire.publish("a")
    pushed = endpoint.next()
    assert pushed.body == b"a"
    assert pushed.headers["x-goog-pubsub-message-id"] == "1"
    assert pushed.headers["x-goog-pubsub-subscription-name"] == SUBSCRIPTION
    await_acknowledged(emulator)


def test_keys_arrive_in_order(emulator: Emulator, wire: Wire, endpoint: Endpoint) -> None:
    """Each message after the answer to the one before."""
    wire.create(push_config=to(endpoint.url()), enable_message_ordering=True)
    sent = [str(number) for number in range(50)]
    wire.publish(*sent, key="k")
    assert [endpoint.next().data for _ in sent] == sent
    await_acknowledged(emulator)


def test_a_backlog_is_pushed_whole(emulator: Emulator, wire: Wire, endpoint: Endpoint) -> None:
    """Each message once while all goes well."""
    wire.create(push_config=to(endpoint.url()))
    sent = [str(number) for number in range(500)]
    wire.publish(*sent)
    assert sorted((endpoint.next().data for _ in sent), key=int) == sent
    await_acknowledged(emulator)
    assert endpoint.is_quiet


# ---- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [102, 200, 201, 202, 204])
def test_these_answers_acknowledge(
    emulator: Emulator, wire: Wire, endpoint: Endpoint, status: int
) -> None:
    """The statuses that the real service takes for a success."""
    endpoint.answer = lambda pushed: status
    wire.create(push_config=to(endpoint.url()))
    wire.publish("a", "b", "c")
    assert {endpoint.next().data for _ in range(3)} == {"a", "b", "c"}
    await_acknowledged(emulator)


@pytest.mark.parametrize("status", [203, 206, 301, 307, 400, 401, 404, 429, 500, 503])
def test_every_other_answer_is_a_failure(
    emulator: Emulator, wire: Wire, endpoint: Endpoint, clock: ManualClock, status: int
) -> None:
    """The message comes again. No redirect is followed."""
    statuses = iter([status, 200])
    endpoint.answer = lambda pushed: next(statuses)
    wire.create(push_config=to(endpoint.url()))
    wire.publish("a")
    assert endpoint.next().path == "/push"
    again = await_retry(endpoint, clock)
    assert (again.path, again.data) == ("/push", "a")
    await_acknowledged(emulator)


def test_no_answer_within_the_ack_deadline_is_a_failure(
    emulator: Emulator, wire: Wire, endpoint: Endpoint, clock: ManualClock
) -> None:
    """By the broker's clock."""
    statuses = iter([0, 200])
    endpoint.answer = lambda pushed: next(statuses)
    wire.create(push_config=to(endpoint.url()), ack_deadline_seconds=600)
    wire.publish("a")
    assert endpoint.next().data == "a"
    clock.advance(599.9)
    assert endpoint.is_quiet
    assert emulator.backlog(SUBSCRIPTION) == 1
    assert await_retry(endpoint, clock).data == "a"
    await_acknowledged(emulator)


def test_an_endpoint_that_is_not_there_yet_gets_its_messages_later(
    emulator: Emulator, wire: Wire, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing listens, then somebody who hangs up, or speaks no HTTP, then the endpoint."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    wire.create(push_config=to(f"http://127.0.0.1:{port}/push"))
    wire.publish("a")
    with socket.create_server(("127.0.0.1", port)) as listener:
        came = threading.Event()

        def talk_nonsense() -> None:
            for words in (b"", b"220 mail.example ESMTP\r\n"):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(words)
            came.set()

        thread = threading.Thread(target=talk_nonsense)
        thread.start()
        while not came.is_set():
            clock.advance(1)
        thread.join()
    assert emulator.backlog(SUBSCRIPTION) == 1
    with Endpoint() as endpoint:
        modify(wire, to(endpoint.url()))
        assert await_retry(endpoint, clock).data == "a"
        await_acknowledged(emulator)
    # No fault of the broker's.
    assert caplog.messages == []


# ---- settings ------------------------------------------------------------------------------------


def test_push_and_pull_are_changed_at_run_time(
    emulator: Emulator, wire: Wire, endpoint: Endpoint
) -> None:
    """By ModifyPushConfig and by an update; a pull is refused while there is an endpoint."""
    wire.create()
    wire.publish("a")
    pull = pubsub.PullRequest(subscription=SUBSCRIPTION, max_messages=1)
    modify(wire, to(endpoint.url("/first")))
    assert endpoint.next().path == "/first"
    await_acknowledged(emulator)
    refused = failure(wire, "Pull", pull)
    assert isinstance(refused, FailedPrecondition)
    assert refused.message == "This method is not supported for this subscription type."
    update = pubsub.UpdateSubscriptionRequest(
        subscription=pubsub.Subscription(
            name=SUBSCRIPTION, push_config=to(endpoint.url("/second"))
        ),
        update_mask={"paths": ["push_config"]},
    )
    wire.call("UpdateSubscription", update)
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
def test_an_endpoint_must_be_a_url(wire: Wire, url: str) -> None:
    """Whichever call brings it; nothing changes."""
    wire.create()
    before = wire.call("GetSubscription", pubsub.GetSubscriptionRequest(subscription=SUBSCRIPTION))
    config = to(url)
    named = pubsub.Subscription(name=SUBSCRIPTION, push_config=config)
    update = pubsub.UpdateSubscriptionRequest(
        subscription=named, update_mask={"paths": ["push_config"]}
    )
    other = pubsub.Subscription(name=f"{SUBSCRIPTION}-2", topic=before.topic, push_config=config)
    change = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=config)
    for method, request in (
        ("CreateSubscription", other),
        ("UpdateSubscription", update),
        ("ModifyPushConfig", change),
    ):
        refused = failure(wire, method, request)
        assert isinstance(refused, InvalidArgument)
        assert refused.message.startswith(f"Invalid push endpoint given (endpoint={url}).")
    listed = wire.call(
        "ListSubscriptions", pubsub.ListSubscriptionsRequest(project="projects/test")
    )
    assert list(listed.subscriptions) == [before]


def test_a_version_must_be_known(wire: Wire) -> None:
    """Of the attribute that once chose the envelope."""
    wire.create()
    config = to("http://127.0.0.1:1/", attributes={"x-goog-version": "v3"})
    request = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=config)
    refused = failure(wire, "ModifyPushConfig", request)
    assert isinstance(refused, InvalidArgument)
    assert refused.message == "Invalid push endpoint version given in push config (version=v3)."


# ---- the broker's life ---------------------------------------------------------------------------


def test_a_broker_that_stops_keeps_what_was_not_answered(
    clock: ManualClock, endpoint: Endpoint
) -> None:
    """The next one on its engine pushes it."""
    endpoint.answer = lambda pushed: 0
    with Emulator(clock=clock) as first:
        wire = Wire(first.endpoint)
        wire.create(push_config=to(endpoint.url()))
        wire.publish("a")
        assert endpoint.next().data == "a"
        wire.close()
    endpoint.answer = lambda pushed: 200
    with Emulator(clock=clock, engine=first.engine) as second:
        assert endpoint.next().data == "a"
        await_acknowledged(second)


def test_real_time_ends_a_pause_too(endpoint: Endpoint) -> None:
    """By a timer of the broker, with nobody calling."""
    statuses = iter([500, 200])
    endpoint.answer = lambda pushed: next(statuses)
    with Emulator() as emulator:
        wire = Wire(emulator.endpoint)
        wire.create(push_config=to(endpoint.url()))
        wire.publish("a")
        assert [endpoint.next().data for _ in range(2)] == ["a", "a"]
        await_acknowledged(emulator)
        wire.close()
