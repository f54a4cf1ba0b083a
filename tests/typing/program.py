"""A user's program with every public name, which type checkers must accept without messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import Any, Literal

from typing_extensions import assert_type

import pullstream as pubsub_v1
from pullstream import (
    AckFuture,
    AcknowledgeError,
    AcknowledgeStatus,
    AsyncFetchedColumns,
    AsyncFetchedMessages,
    AsyncPublisherClient,
    AsyncSubscriberClient,
    BatchSettings,
    ChannelFailure,
    ChannelLimits,
    ChannelMessage,
    ChannelPublisher,
    ChannelSubscriber,
    CheckpointFile,
    CoroutineScheduler,
    Dedupe,
    Dropped,
    FetchedColumns,
    FetchedMessages,
    FlowControl,
    FlowControlLimitError,
    Follower,
    ForkedProcess,
    FrameStream,
    Hooks,
    Latency,
    LimitExceededBehavior,
    Message,
    MessageBatch,
    MessageColumns,
    MessageStream,
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
    PublishManyFuture,
    PublishToPausedOrderingKeyException,
    PullTimeout,
    Reading,
    Reset,
    Scheduler,
    SchemaServiceClient,
    ServerCursor,
    StateChange,
    Statistics,
    StreamingPullFuture,
    StreamStatistics,
    SubscriberClient,
    SubscriberClosed,
    SubscriptionState,
    ThreadScheduler,
    TopicAdminClient,
    WatchFuture,
)
from pullstream.feeds import Frame, Gap, GapReason, Records
from pullstream.follow import CaughtUp, Checkpoint, Closed, CloseReason, Event, FollowState, Record
from pullstream.types import (
    Feed,
    FieldMask,
    Position,
    PubsubMessage,
    PullResponse,
    Subscription,
)
from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock

TIMEOUT = 30.0


def handle(message: Message) -> None:
    """Use all attributes of a message."""
    assert_type(message.message_id, str)
    assert_type(message.data, bytes)
    assert_type(message.attributes, MutableMapping[str, str])
    assert_type(message.attributes["key"], str)
    assert_type(message.publish_time, datetime)
    assert_type(message.ordering_key, str)
    assert_type(message.size, int)
    assert_type(message.ack_id, str)
    assert_type(message.delivery_attempt, "int | None")
    assert_type(message.exactly_once_enabled, bool)
    message.modify_ack_deadline(60)
    message.ack()


def handle_and_wait(message: Message) -> None:
    """Use the results of dispositions."""
    assert_type(message.modify_ack_deadline_with_response(60), AckFuture)
    future: AckFuture = message.ack_with_response()
    try:
        assert_type(future.result(timeout=TIMEOUT), AcknowledgeStatus)
    except AcknowledgeError as error:
        assert_type(error.error_code, AcknowledgeStatus)
        assert_type(error.info, "str | None")


def handle_as_before(message: pubsub_v1.subscriber.message.Message) -> None:
    """Use the names of the official client."""
    assert_type(message, Message)
    try:
        message.nack_with_response().result(timeout=TIMEOUT)
    except pubsub_v1.exceptions.TimeoutError:
        message.drop()
    except pubsub_v1.subscriber.exceptions.AcknowledgeError:
        message.nack()


class Inline(Scheduler):
    """A scheduler written by the user."""

    def schedule(self, callback: Callable[..., Any], *args: Any) -> None:
        callback(*args)

    def shutdown(self, await_msg_callbacks: bool = False) -> list[Message]:
        return []


def receive(client: SubscriberClient, subscription: str) -> None:
    """Subscribe in every way, and use the future."""
    future = client.subscribe(subscription, handle, flow_control=FlowControl(max_messages=10))
    assert_type(future, StreamingPullFuture)
    assert_type(future.running(), bool)
    assert_type(future.cancel(), bool)
    assert_type(future.result(timeout=TIMEOUT), bool)
    assert_type(future.exception(), "BaseException | None")

    limits = pubsub_v1.types.FlowControl(max_bytes=1_000_000, max_lease_duration=600)
    assert_type(limits, FlowControl)
    before = pubsub_v1.subscriber.scheduler.ThreadScheduler(ThreadPoolExecutor(2))
    schedulers: list[Scheduler] = [ThreadScheduler(max_workers=2), Inline(), before]
    for scheduler in schedulers:
        client.subscribe(
            subscription,
            callback=handle_and_wait,
            flow_control=limits,
            scheduler=scheduler,
            await_callbacks_on_shutdown=True,
        ).cancel()
    client.subscribe(subscription, lambda message: message.ack(), max_workers=4).cancel()
    client.subscribe(subscription, handle_as_before).cancel()
    client.subscribe(subscription, Dedupe("order-id")(handle)).cancel()


class Watch(Hooks):
    """Hooks written by the user."""

    def state_changed(self, subscription: str, change: StateChange) -> None:
        if change.state is SubscriptionState.CLOSED:
            assert_type(change.cause, "Exception | None")


def handle_many(messages: MessageBatch) -> None:
    """Settle a list one by one or as a whole."""
    for message in messages:
        assert_type(message, Message)
    messages.nack(delay=10)


def handle_columns(columns: MessageColumns) -> None:
    """Settle columns together, some by a mask."""
    assert_type(columns.data, list[bytes])
    assert_type(columns.attributes, list[Mapping[str, str]])
    assert_type(columns.delivery_attempts, "list[int | None]")
    columns.nack([not data for data in columns.data], delay=10)
    columns.ack()
    for message in columns:
        assert_type(message, Message)


async def handle_columns_later(columns: MessageColumns) -> None:
    """Acknowledge in an asynchronous callback."""
    columns.ack()


def fetch_columns(client: SubscriberClient, subscription: str) -> None:
    """Fetch messages as columns."""
    with client.fetch(subscription, 100, columns=True) as columns:
        assert_type(columns, FetchedColumns)
        columns.nack([False] * len(columns))
        columns.ack()
    assert_type(client.fetch(subscription, 100), FetchedMessages)


async def receive_columns(client: AsyncSubscriberClient, subscription: str) -> None:
    """Receive columns on an event loop."""
    client.subscribe_batch(subscription, handle_columns_later, columns=True).cancel()
    columns = await client.fetch(subscription, 100, columns=True)
    assert_type(columns, AsyncFetchedColumns)
    await columns.ack()


async def handle_later(message: Message) -> None:
    """Nack in an asynchronous callback."""
    message.nack(delay=0.5)


def receive_in_other_ways(client: SubscriberClient, subscription: str) -> None:
    """Use lists, coroutines, hooks, and the statistics of a subscription."""
    future = client.subscribe_batch(
        subscription, handle_many, max_messages=10, max_latency=0.1, hooks=Watch()
    )
    client.subscribe_batch(subscription, handle_columns, columns=True).cancel()
    statistics: Statistics = future.statistics()
    assert_type(statistics.latency, Latency)
    assert_type(statistics.latency.p99, float)
    assert_type(statistics.acked, int)
    assert_type(statistics.streams, tuple[StreamStatistics, ...])
    assert_type(future.state, SubscriptionState)
    assert_type(future.close(timeout=TIMEOUT, mode="nack"), bool)
    client.subscribe(
        subscription,
        handle_later,
        scheduler=CoroutineScheduler(max_tasks=5),
        release_after="ack",
        give_up_after=60,
        hooks=[Watch()],
    ).cancel()
    try:
        client.close(timeout=TIMEOUT, mode="drain")
        client.subscribe(subscription, handle)
    except (ForkedProcess, SubscriberClosed):
        pass


async def stream(client: AsyncSubscriberClient, subscription: str) -> None:
    """Iterate asynchronously over messages."""
    messages = client.stream(subscription, FlowControl(max_messages=5))
    assert_type(messages, MessageStream)
    async for message in messages:
        assert_type(message, Message)
        message.ack()
        break
    try:
        assert_type(await client.fetch(subscription, timeout=0.01), AsyncFetchedMessages)
    except PullTimeout as timeout:
        assert_type(timeout.answered, bool)
    await client.close(timeout=TIMEOUT)


def pull(client: SubscriberClient, subscription: str) -> None:
    """Pull with a request or with keywords."""
    response = client.pull(subscription=subscription, max_messages=10, timeout=TIMEOUT)
    assert_type(response, PullResponse)
    for received in response.received_messages:
        assert_type(received.message.data, bytes)
        assert_type(received.ack_id, str)
    ack_ids = [received.ack_id for received in response.received_messages]
    client.acknowledge(request={"subscription": subscription, "ack_ids": ack_ids}, retry=None)
    with client.fetch(subscription, 10, no_wait=True) as messages:
        assert_type(messages, FetchedMessages)
        assert_type(messages.unsettled, list[Message])
        assert_type(messages.reason, Literal["filled", "timed_out", "drained"])
    assert_type(client.subscription_state(subscription).num_waiting, int)


def keep(frame: Frame) -> None:
    """Handle the frames of a watch."""
    if isinstance(frame, Records):
        assert_type(frame.messages, Sequence[PubsubMessage])
        assert_type(frame.to_seq, int)
    elif isinstance(frame, Gap):
        assert_type(frame.reason, GapReason)


def read_feeds(client: SubscriberClient, endpoint: str) -> None:
    """Write to feeds with one client, and read and watch with another."""
    news = client.topic_path("project", "news")
    with SubscriberClient(endpoint=endpoint) as writer:
        assert_type(writer.feeds.put(news, {"cap_records": 10}), Feed)
        appended = writer.feeds.append(news, ["a", b"b", {"data": b"c"}], idempotency_key="k")
        assert_type(appended.last_seq, int)
    reading = client.feeds.read(news, after=0, wait=1.5)
    assert_type(reading, Reading)
    assert_type(reading.gap, "Gap | None")
    position: Position = client.feeds.read(news, after=reading.position).position
    watch = client.watch({news: "tail", f"{news}-other": position}, keep, heartbeat=5)
    assert_type(watch, WatchFuture)
    assert_type(watch.state, SubscriptionState)
    assert_type(watch.resume_token, str)
    assert_type(watch.close(timeout=TIMEOUT), bool)


def copy_record(record: Record) -> None:
    """Handle a record of a follower."""
    assert_type(record.seq, int)
    assert_type(record.data, bytes)
    assert_type(record.publish_time, datetime)


def note(event: Event) -> None:
    """Handle the events of a follower."""
    if isinstance(event, CaughtUp):
        assert_type(event.position, Checkpoint)
    elif isinstance(event, Closed):
        assert_type(event.reason, CloseReason)


def follow_news(client: SubscriberClient, folder: str) -> None:
    """Run two followers, with one position in a file and one on the broker."""
    news = client.topic_path("project", "news")
    file = CheckpointFile(f"{folder}/positions.db", "copy")
    cursor = ServerCursor("projects/project/cursors/copy")
    follower = client.follow(news, copy_record, checkpoint=file, on_event=note)
    assert_type(follower, Follower)
    assert_type(client.follow(news, copy_record, "tail", checkpoint=cursor), Follower)
    assert_type(follower.state, FollowState)
    assert_type(follower.lag, int)
    assert_type(follower.statistics().kept, "Checkpoint | None")
    assert_type(follower.close(timeout=TIMEOUT), bool)


async def watch_frames(client: AsyncSubscriberClient) -> None:
    """Iterate asynchronously over frames."""
    frames = client.watch({"projects/project/topics/news": 0})
    assert_type(frames, FrameStream)
    async for frame in frames:
        keep(frame)
        break
    await client.close()


def hear(message: ChannelMessage) -> None:
    """Handle a message of a channel."""
    assert_type(message.channel, str)
    assert_type(message.key, str)
    assert_type(message.data, bytes)


def note_failure(error: Exception) -> None:
    """Handle the end of a listener's subscription."""
    if isinstance(error, ChannelFailure):
        assert_type(str(error), str)


def note_loss(event: Reset | Dropped) -> None:
    """Handle an event about messages that a listener may have missed."""
    if isinstance(event, Dropped):
        assert_type(event.count, int)


def listen(client: SubscriberClient) -> None:
    """Listen through the broker, and publish from this process."""
    listener = client.listen(note_loss, newest_only=True)
    assert_type(listener, ChannelSubscriber)
    jobs = client.topic_path("project", "orders")
    started = listener.subscribe(jobs, "job-7", on_message=hear, on_failure=note_failure)
    assert_type(started, bool)
    assert_type(listener.is_subscribed(jobs, "job-7"), bool)
    assert_type(listener.unsubscribe(jobs, "job-7"), bool)
    assert_type(listener.close(timeout=TIMEOUT), bool)
    publisher = ChannelPublisher(limits=ChannelLimits(mailbox_items=10))
    assert_type(publisher.publish("jobs", "job-7", b"done", by="worker"), int)
    publisher.close()


class Count(PublisherHooks):
    """Hooks of a publisher, written by the user."""

    def failed(self, topic: str, messages: int, error: BaseException) -> None:
        print(topic, messages, error)


def publish(endpoint: str, topic: str) -> None:
    """Publish one message and many, and handle all errors."""
    limits = PublishFlowControl(limit_exceeded_behavior=LimitExceededBehavior.BLOCK)
    options = PublisherOptions(
        enable_message_ordering=True, flow_control=limits, hedging=PublishHedging(delay=0.5)
    )
    with PublisherClient(
        BatchSettings(max_messages=10), options, hooks=Count(), endpoint=endpoint
    ) as publisher:
        try:
            future = publisher.publish(topic, b"one", "key", timeout=5, origin="web")
            assert_type(future, PublishFuture)
            assert_type(future.result(), str)
            future.add_done_callback(lambda done: print(done.result()))
        except (FlowControlLimitError, MessageTooLargeError, PublisherClosed) as error:
            print(error)
        except PublishToPausedOrderingKeyException as error:
            publisher.resume_publish(topic, error.ordering_key)
        many = publisher.publish_many(topic, [b"two", PubsubMessage(data=b"three")])
        assert_type(many, PublishManyFuture)
        try:
            assert_type(many.result(), list[str])
        except PublishError as error:
            assert_type(error.message_ids, list[str | None])
        assert_type(publisher.statistics(), PublisherStatistics)


async def publish_async(endpoint: str, topic: str) -> None:
    """Publish on an event loop."""
    async with AsyncPublisherClient(endpoint=endpoint) as publisher:
        assert_type(await publisher.publish(topic, b"four"), str)
        assert_type(await publisher.publish_many(topic, [b"five"]), list[str])


def manage(client: SubscriberClient, topics: TopicAdminClient, project: str) -> str:
    """Create topics and subscriptions, and return the name of the subscription."""
    topic = topics.create_topic(name=topics.topic_path(project, "orders"))
    name = client.subscription_path(project, "billing")
    subscription = client.create_subscription(name=name, topic=topic.name)
    assert_type(subscription, Subscription)
    subscription.ack_deadline_seconds = 30
    mask = FieldMask(paths=["ack_deadline_seconds"])
    client.update_subscription(subscription=subscription, update_mask=mask)
    for each in client.list_subscriptions(project=client.common_project_path(project)):
        assert_type(each, Subscription)
    assert_type(topics.publish(topic.name, [{"data": b"one"}, {"data": b"two"}]), list[str])
    return name


def manage_schemas(schemas: SchemaServiceClient, project: str) -> None:
    """Create a schema and list the schemas of the project."""
    definition = '{"type": "record", "name": "Order", "fields": []}'
    created = schemas.create_schema(
        parent=project, schema_id="order", schema={"type": "AVRO", "definition": definition}
    )
    assert_type(created.revision_id, str)
    assert_type([each.name for each in schemas.list_schemas(parent=project)], list[str])


def main() -> None:
    # No time passes that would end a lease of a cancelled subscription.
    with Emulator(clock=ManualClock(), return_leases_on_disconnect=True) as broker:
        assert_type(broker.endpoint, str)
        endpoint = broker.endpoint
        with (
            SubscriberClient(endpoint=endpoint) as client,
            TopicAdminClient(client_options={"api_endpoint": endpoint}) as topics,
        ):
            as_before: pubsub_v1.subscriber.Client = client
            assert_type(as_before.target, str)
            subscription = manage(client, topics, "project")
            with SchemaServiceClient(endpoint=endpoint) as schemas:
                manage_schemas(schemas, "projects/project")
            pull(client, subscription)
            receive(client, subscription)
            topics.publish("projects/project/topics/orders", [{"data": b"three"}])
            asyncio.run(stream(AsyncSubscriberClient(endpoint=endpoint), subscription))
            publish(endpoint, "projects/project/topics/orders")
            asyncio.run(publish_async(endpoint, "projects/project/topics/orders"))
            read_feeds(client, endpoint)
            with TemporaryDirectory() as folder:
                follow_news(client, folder)
            asyncio.run(watch_frames(AsyncSubscriberClient(endpoint=endpoint)))
            listen(client)
            receive_in_other_ways(client, subscription)
            assert_type(broker.backlog(subscription), int)


if __name__ == "__main__":
    main()
