"""One push subscription on an event loop. The test plays the endpoint and moves the time."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pullstream_emulator.push.delivery import PushDelivery
from pullstream_emulator.push.envelope import PushAnswer, PushRequest
from pullstream_emulator.push.pusher import FIRST_WINDOW
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, Broker, new_engine

URL = "http://127.0.0.1:1/push"


class Post:
    """A request in progress. `answer` ends it."""

    def __init__(self, request: PushRequest) -> None:
        self.request = request
        self.outcome: asyncio.Future[PushAnswer] = asyncio.get_running_loop().create_future()

    @property
    def data(self) -> str:
        return base64.b64decode(json.loads(self.request.body)["message"]["data"]).decode()

    @property
    def attempt(self) -> int:
        attempt: int = json.loads(self.request.body)["deliveryAttempt"]
        return attempt

    def answer(self, taken: bool) -> None:
        self.outcome.set_result(PushAnswer(taken, "200 OK" if taken else "503 Service Unavailable"))


class Endpoint:
    """Plays the HTTP client. Holds every request until the test answers it."""

    def __init__(self) -> None:
        self.posts: deque[Post] = deque()
        self.cut_off = 0

    async def post(self, request: PushRequest) -> PushAnswer:
        post = Post(request)
        self.posts.append(post)
        try:
            return await post.outcome
        except asyncio.CancelledError:
            self.cut_off += 1
            raise

    async def close(self) -> None:
        """Do nothing."""

    @property
    def data(self) -> list[str]:
        return [post.data for post in self.posts]

    def next(self) -> Post:
        return self.posts.popleft()


class World:
    """A broker with a push subscription, and its endpoint."""

    def __init__(self, **subscription: Any) -> None:
        config = pubsub.PushConfig(push_endpoint=URL)
        self.clock = ManualClock()
        self.endpoint = Endpoint()
        self.follows = False
        engine = new_engine(self.clock, on_push=self._on_push)
        self.broker = Broker(self.clock, engine=engine, push_config=config, **subscription)
        self.delivery = PushDelivery(self.broker.engine, self.clock, sender=self.endpoint)

    def start(self) -> None:
        """Push, and follow changes of the push configs."""
        self.follows = True
        self.delivery.start()

    async def stop(self) -> None:
        self.follows = False
        await self.delivery.stop()

    def _on_push(self, name: str) -> None:
        if self.follows:
            self.delivery.follow_config(name)

    async def publish(self, *data: str, key: str = "") -> None:
        self.broker.publish(*data, key=key)
        await settled()

    async def answer(self, taken: bool) -> str:
        """Answer the oldest request, and return its message."""
        post = self.endpoint.next()
        post.answer(taken)
        await settled()
        return post.data

    async def advance(self, seconds: float) -> None:
        self.broker.advance(seconds)
        await settled()

    async def push_to(self, endpoint: str) -> None:
        """Set the endpoint. An empty one makes it a pull subscription."""
        self.broker.engine.modify_push_config(
            pubsub.ModifyPushConfigRequest(
                subscription=SUBSCRIPTION, push_config=pubsub.PushConfig(push_endpoint=endpoint)
            )
        )
        await settled()


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(200):
        await asyncio.sleep(0)


Scenario = Callable[[World], Awaitable[None]]


def pushing(**settings: Any) -> Callable[[Scenario], Callable[[], None]]:
    """Run a test on an event loop, with push delivery of a subscription with these settings."""

    async def play(scenario: Scenario) -> None:
        world = World(**settings)
        world.start()
        await settled()
        try:
            await scenario(world)
        finally:
            await world.stop()

    def decorate(scenario: Scenario) -> Callable[[], None]:
        # functools.wraps is unsuitable: pytest would look for a fixture named like the argument.
        def test() -> None:
            asyncio.run(play(scenario))

        test.__doc__ = scenario.__doc__
        return test

    return decorate


# ---- outcomes ------------------------------------------------------------------------------------


@pushing()
async def test_a_push_request_answered_with_success_acknowledges_its_message(world: World) -> None:
    """The message is not acknowledged before the answer."""
    await world.publish("a")
    assert world.broker.backlog == 1
    await world.answer(True)
    assert world.broker.backlog == 0
    assert not world.endpoint.posts


@pushing()
async def test_a_failed_push_of_a_message_is_repeated_after_a_growing_pause(
    world: World,
) -> None:
    """The pause is 100 ms, and doubles with each further failure."""
    await world.publish("a")
    for pause in (0.1, 0.2, 0.4):
        assert await world.answer(False) == "a"
        await world.advance(pause - 0.001)
        assert world.endpoint.data == []
        await world.advance(0.001)
        assert world.endpoint.data == ["a"]
    await world.answer(True)
    assert world.broker.backlog == 0


@pushing()
async def test_the_pause_after_a_failed_push_delays_all_messages_of_the_subscription(
    world: World,
) -> None:
    """The failure probably concerns the endpoint, not the message."""
    await world.publish("a")
    await world.answer(False)
    await world.publish("b", "c")
    assert world.endpoint.data == []
    await world.advance(0.1)
    assert sorted(world.endpoint.data) == ["a", "b"]


@pushing(ack_deadline_seconds=20)
async def test_a_push_request_without_an_answer_within_the_ack_deadline_fails(world: World) -> None:
    """The request is cancelled after that, and the message is redelivered."""
    await world.publish("a")
    await world.advance(19.9)
    assert world.endpoint.cut_off == 0
    await world.advance(0.1)
    assert world.endpoint.cut_off == 1
    world.endpoint.posts.clear()
    await world.advance(0.1)
    assert world.endpoint.data == ["a"]
    await world.answer(True)
    assert world.broker.backlog == 0


@pushing(
    dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC, max_delivery_attempts=5)
)
async def test_each_failed_push_of_a_message_counts_as_a_delivery_attempt(world: World) -> None:
    """A bad answer and a timeout count as one attempt each."""
    await world.publish("a")
    assert world.endpoint.posts[0].attempt == 1
    await world.answer(False)
    await world.advance(0.1)
    assert world.endpoint.posts[0].attempt == 2
    await world.advance(10)
    world.endpoint.posts.clear()
    await world.advance(0.2)
    assert world.endpoint.posts[0].attempt == 3


@pushing(dead_letter_policy=pubsub.DeadLetterPolicy(dead_letter_topic=TOPIC))
async def test_a_message_whose_push_fails_too_often_is_published_to_the_dead_letter_topic(
    world: World,
) -> None:
    """After five requests the message is not posted again.

    Its copy is posted, because the topic is the same.
    """
    await world.publish("a")
    for pause in (0.1, 0.2, 0.4, 0.8, 1.6):
        post = world.endpoint.posts[0]
        await world.answer(False)
        await world.advance(pause)
    assert post.attempt == 5
    (copy,) = world.endpoint.posts
    assert (copy.data, copy.attempt) == ("a", 1)
    attributes = json.loads(copy.request.body)["message"]["attributes"]
    assert attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"


@pushing(retry_policy=pubsub.RetryPolicy(minimum_backoff={"seconds": 20}))
async def test_with_a_retry_policy_each_message_with_a_failed_push_has_a_separate_backoff(
    world: World,
) -> None:
    """The endpoint is not paused, and other messages are sent."""
    await world.publish("a")
    await world.answer(False)
    await world.publish("b")
    assert await world.answer(True) == "b"
    await world.advance(19.9)
    assert world.endpoint.data == []
    await world.advance(0.1)
    assert world.endpoint.data == ["a"]


# ---- number of concurrent requests ---------------------------------------------------------------


@pushing()
async def test_the_number_of_concurrent_push_requests_grows_with_successful_pushes(
    world: World,
) -> None:
    """The first window has a few requests."""
    await world.publish(*map(str, range(100)))
    assert len(world.endpoint.posts) == FIRST_WINDOW
    for _ in range(FIRST_WINDOW):
        await world.answer(True)
    assert len(world.endpoint.posts) == 2 * FIRST_WINDOW


@pushing()
async def test_only_one_push_request_at_a_time_is_sent_to_a_failing_endpoint(world: World) -> None:
    """The window stays one until there is a success."""
    await world.publish(*map(str, range(100)))
    for pause in (0.1, 0.2, 0.4):
        while world.endpoint.posts:
            await world.answer(False)
        await world.advance(pause)
    assert len(world.endpoint.posts) == 1
    await world.answer(True)
    assert len(world.endpoint.posts) == 2


@pushing()
async def test_with_a_push_endpoint_that_never_fails_every_message_is_pushed_exactly_once(
    world: World,
) -> None:
    """The order of the answers does not matter."""
    sent = [str(number) for number in range(300)]
    await world.publish(*sent)
    got = []
    while world.endpoint.posts:
        # Answer the youngest request first.
        world.endpoint.posts.rotate(1)
        got.append(await world.answer(True))
    assert sorted(got, key=int) == sent
    assert world.broker.backlog == 0


# ---- ordering keys -------------------------------------------------------------------------------


@pushing(enable_message_ordering=True)
async def test_messages_of_an_ordering_key_are_pushed_one_at_a_time(world: World) -> None:
    """The next message is sent after the acknowledgement. Other keys continue."""
    await world.publish("a1", "a2", "a3", key="a")
    await world.publish("b1", "b2", key="b")
    assert world.endpoint.data == ["a1", "b1"]
    await world.answer(True)
    assert world.endpoint.data == ["b1", "a2"]
    await world.answer(True)
    assert sorted(world.endpoint.data) == ["a2", "b2"]


@pushing(enable_message_ordering=True)
async def test_messages_of_an_ordering_key_stay_in_order_after_a_failed_push(world: World) -> None:
    """No later message is posted before the failed one is accepted."""
    await world.publish("a1", "a2", "a3", key="a")
    order = []
    for taken in (True, False, False, True, False, True):
        order.append(await world.answer(taken))
        if not taken:
            await world.advance(0.2)
    assert order == ["a1", "a2", "a2", "a2", "a3", "a3"]
    assert world.broker.backlog == 0


# ---- changes -------------------------------------------------------------------------------------


@pushing()
async def test_a_subscription_whose_push_endpoint_is_removed_can_be_pulled(world: World) -> None:
    """Open requests may still be answered. The remaining messages can be pulled."""
    await world.publish(*map(str, range(6)))
    await world.push_to("")
    puller = world.broker.join()
    assert sorted(puller.take_data()) == ["4", "5"]
    for _ in range(4):
        await world.answer(True)
    assert world.broker.backlog == 2
    await world.publish("6")
    assert puller.take_data() == ["6"]


@pushing()
async def test_setting_a_push_endpoint_for_a_pull_subscription_pushes_its_backlog(
    world: World,
) -> None:
    """The subscription was a pull subscription before."""
    await world.push_to("")
    await world.publish("a")
    assert world.endpoint.data == []
    await world.push_to(URL)
    assert world.endpoint.data == ["a"]


@pushing()
async def test_after_a_change_of_the_push_endpoint_the_pause_for_the_old_endpoint_does_not_apply(
    world: World,
) -> None:
    """The failures belong to the other endpoint, and so does the end of its pause."""
    await world.publish("a")
    for pause in (0.1, 0.2):
        await world.answer(False)
        await world.advance(pause)
    await world.answer(False)
    await world.push_to(URL + "/other")
    (post,) = world.endpoint.posts
    assert post.request.url == URL + "/other"
    for pause in (0.1, 0.2):
        await world.answer(False)
        await world.advance(pause)
        assert world.endpoint.data == ["a"]
    await world.answer(False)
    await world.advance(0.2)
    assert world.endpoint.data == []


@pushing()
async def test_a_push_config_change_with_the_same_endpoint_keeps_the_pause_after_a_failure(
    world: World,
) -> None:
    """Other changes of the push config take effect with the next request."""
    await world.publish("a")
    await world.answer(False)
    config = pubsub.PushConfig(push_endpoint=URL, no_wrapper={})
    request = pubsub.ModifyPushConfigRequest(subscription=SUBSCRIPTION, push_config=config)
    world.broker.engine.modify_push_config(request)
    await settled()
    assert not world.endpoint.posts
    await world.advance(0.1)
    assert world.endpoint.next().request.body == b"a"


@pushing()
async def test_replacing_the_push_endpoint_of_a_subscription_by_an_export_ends_the_pushes(
    world: World,
) -> None:
    """The subscription does not become a pull subscription."""
    config = pubsub.Subscription(name=SUBSCRIPTION, bigquery_config={"table": "p.d.t"})
    request = pubsub.UpdateSubscriptionRequest(
        subscription=config, update_mask={"paths": ["push_config", "bigquery_config"]}
    )
    world.broker.engine.update_subscription(request)
    await world.publish("a")
    assert not world.endpoint.posts


@pushing()
async def test_a_late_failure_of_a_replaced_push_endpoint_does_not_delay_pushes_to_the_new_one(
    world: World,
) -> None:
    """A failure of the old endpoint does not count.

    The message is posted to the new one at once.
    """
    await world.publish("a")
    await world.push_to(URL + "/other")
    await world.answer(False)
    (post,) = world.endpoint.posts
    assert post.request.url == URL + "/other"


@pushing()
async def test_messages_of_a_deleted_push_subscription_are_not_pushed(world: World) -> None:
    """A later answer is ignored."""
    await world.publish("a")
    world.broker.engine.delete_subscription(SUBSCRIPTION)
    await settled()
    await world.answer(True)
    assert world.endpoint.data == []


@pushing()
async def test_messages_of_a_recreated_push_subscription_are_pushed(world: World) -> None:
    """The pushes begin even if requests of the former subscription are still open."""
    await world.publish("a")
    world.broker.engine.delete_subscription(SUBSCRIPTION)
    world.broker.engine.create_subscription(
        pubsub.Subscription(
            name=SUBSCRIPTION, topic=TOPIC, push_config=pubsub.PushConfig(push_endpoint=URL)
        )
    )
    await world.publish("b")
    assert world.endpoint.data == ["a", "b"]
    await world.answer(False)
    await world.answer(True)
    assert world.broker.backlog == 0


@pushing()
async def test_stopping_the_pusher_frees_the_leases_of_messages_whose_push_is_unanswered(
    world: World,
) -> None:
    """No attempt is counted. The next broker with this engine pushes the message."""
    await world.publish("a")
    await world.stop()
    assert world.endpoint.cut_off == 1
    world.endpoint.posts.clear()
    await world.push_to(URL + "/other")
    assert world.endpoint.data == []
    world.start()
    await settled()
    assert world.endpoint.data == ["a"]


@pushing()
async def test_stopping_the_pusher_cancels_unanswered_push_requests_to_a_removed_push_endpoint(
    world: World,
) -> None:
    """The message can be pulled."""
    await world.publish("a")
    await world.push_to("")
    await world.stop()
    assert world.endpoint.cut_off == 1
    assert world.broker.join().take_data() == ["a"]


@pushing()
async def test_a_push_that_raises_an_exception_is_logged_and_its_message_pushed_again(
    world: World,
) -> None:
    """Pushing continues."""
    await world.publish("a")
    world.endpoint.next().outcome.set_exception(ZeroDivisionError())
    await settled()
    await world.advance(0.1)
    assert world.endpoint.data == ["a"]


def test_the_broker_logs_a_warning_about_a_push_subscription_if_aiohttp_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The subscription exists and keeps its messages."""

    async def scenario() -> int:
        broker = Broker(push_config=pubsub.PushConfig(push_endpoint=URL))
        delivery = PushDelivery(broker.engine, broker.clock)
        delivery.start()
        broker.publish("a")
        await settled()
        await delivery.stop()
        return broker.backlog

    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with caplog.at_level(logging.WARNING, "pullstream.emulator"):
        assert asyncio.run(scenario()) == 1
    assert f"cannot push to {URL}" in caplog.text
    assert "pullstream[http]" in caplog.text


# ---- reports of outages --------------------------------------------------------------------------


@contextmanager
def reports() -> Iterator[list[str]]:
    """Collect the log lines of the broker from INFO on."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname}: {record.getMessage()}")

    handler = Handler()
    log = logging.getLogger("pullstream.emulator")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@pushing()
async def test_the_broker_logs_the_failure_of_a_push_endpoint_once_and_then_its_recovery(
    world: World,
) -> None:
    await world.push_to(f"{URL}?token=secret".replace("://", "://user:password@"))
    with reports() as lines:
        await world.publish("a")
        for pause in (0.1, 0.2, 0.4, 0.8):
            await world.answer(False)
            await world.advance(pause)
        (line,) = lines
        assert line.startswith(f"WARNING: {SUBSCRIPTION}: the push endpoint {URL} accepts no")
        assert "(503 Service Unavailable)" in line
        await world.answer(True)
        assert lines[1:] == [
            f"INFO: {SUBSCRIPTION}: the push endpoint {URL} accepts messages again"
        ]


@pushing()
async def test_the_broker_logs_a_warning_and_a_recovery_for_each_outage_of_a_push_endpoint(
    world: World,
) -> None:
    with reports() as lines:
        for _ in range(2):
            await world.publish("a")
            for pause in (0.1, 0.2):
                await world.answer(False)
                await world.advance(pause)
            await world.answer(True)
    assert [line.partition(":")[0] for line in lines] == ["WARNING", "INFO"] * 2


@pushing(ack_deadline_seconds=20)
async def test_the_broker_logs_a_warning_about_a_push_endpoint_that_never_answers(
    world: World,
) -> None:
    with reports() as lines:
        await world.publish("a")
        await world.advance(20)
        await world.advance(0.1)
        await world.advance(20)
    assert len(lines) == 1
    assert "(no answer within 20 s)" in lines[0]


@pushing()
async def test_the_broker_logs_no_warning_if_only_single_messages_fail_to_be_pushed(
    world: World,
) -> None:
    with reports() as lines:
        for _ in range(3):
            await world.publish("a")
            await world.answer(False)
            await world.advance(0.1)
            await world.answer(True)
    assert lines == []


@pushing()
async def test_the_broker_logs_no_failures_of_a_replaced_push_endpoint(world: World) -> None:
    with reports() as lines:
        await world.publish("a")
        await world.answer(False)
        await world.push_to("http://127.0.0.1:2/other")
        await world.answer(False)
        assert lines == []
