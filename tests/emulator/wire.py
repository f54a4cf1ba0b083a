"""A low-level gRPC client: the calls of the RPC table over one channel, and a streaming pull."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from pullstream_protocol.errors import RpcError, from_rpc_error
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD, UNSEEN, Kind
from tests.emulator.broker import SUBSCRIPTION, TOPIC, update_request

# Seconds. No step takes longer on any machine; the limit turns a hang into a failure.
TIMEOUT = 20.0


class Wire:
    """A client of one broker, and a context manager that closes the client."""

    def __init__(self, endpoint: str) -> None:
        self.channel = grpc.insecure_channel(
            endpoint,
            # Each Wire has its own connection, even to the same broker.
            options=[("grpc.use_local_subchannel_pool", 1)],
        )

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, request: Message, timeout: float = TIMEOUT) -> Any:
        return self.start(method, request, timeout).result()

    def start(self, method: str, request: Message, timeout: float = TIMEOUT) -> Any:
        """Return the call as a future. `cancel()` ends it."""
        return self.raw(method).future(request.SerializeToString(), timeout=timeout)

    def failure(self, method: str, request: Message) -> RpcError:
        """Return the error of a call, with its ErrorInfo."""
        error = self.start(method, request).exception()
        assert error is not None, f"{method} succeeded"
        return from_rpc_error(error)

    def raw(self, method: str) -> Any:
        """Return the plain gRPC call, which takes the request as bytes."""
        rpc = BY_METHOD[method]
        make = self.channel.stream_stream if rpc.kind is Kind.BIDI else self.channel.unary_unary
        return make(rpc.path, response_deserializer=rpc.response.FromString)

    def create(self, **subscription: Any) -> None:
        """Create the topic and the subscription that all tests use."""
        self.call("CreateTopic", pubsub.Topic(name=TOPIC))
        self.call(
            "CreateSubscription",
            pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, **subscription),
        )

    def create_with(self, *data: str, **subscription: Any) -> None:
        """Do the same, and publish these messages."""
        self.create(**subscription)
        self.publish(*data)

    def publish(self, *data: str, key: str = "") -> None:
        messages = [pubsub.PubsubMessage(data=d.encode(), ordering_key=key) for d in data]
        self.call("Publish", pubsub.PublishRequest(topic=TOPIC, messages=messages))

    def pull(self, max_messages: int = 100, *, wait: bool = True) -> list[pubsub.ReceivedMessage]:
        request = pubsub.PullRequest(
            subscription=SUBSCRIPTION, max_messages=max_messages, return_immediately=not wait
        )
        return list(self.call("Pull", request).received_messages)

    def acknowledge(self, *ack_ids: str) -> None:
        request = pubsub.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)
        self.call("Acknowledge", request)

    def modify(self, seconds: int, *ack_ids: str, unseen: bool = False) -> None:
        request = pubsub.ModifyAckDeadlineRequest(
            subscription=SUBSCRIPTION, ack_ids=ack_ids, ack_deadline_seconds=seconds
        )
        metadata = ((UNSEEN, "1"),) if unseen else ()
        self.raw("ModifyAckDeadline")(
            request.SerializeToString(), timeout=TIMEOUT, metadata=metadata
        )

    def update(self, **settings: Any) -> pubsub.Subscription:
        """Change settings of the subscription."""
        updated: pubsub.Subscription = self.call("UpdateSubscription", update_request(**settings))
        return updated

    def seek(self, seconds: int) -> None:
        """Seek to a time of the broker's clock."""
        request = pubsub.SeekRequest(subscription=SUBSCRIPTION)
        request.time.FromSeconds(seconds)
        self.call("Seek", request)

    def delete_subscription(self) -> None:
        request = pubsub.DeleteSubscriptionRequest(subscription=SUBSCRIPTION)
        self.call("DeleteSubscription", request)

    def stream(self, **first: Any) -> Stream:
        return Stream(self, **first)

    def close(self) -> None:
        self.channel.close()


class Stream:
    """An open streaming pull.

    Its first request names the subscription, a deadline of 60 s, and asks for pongs. The fields
    that a test gives replace these; None omits a field.
    """

    def __init__(self, wire: Wire, **first: Any) -> None:
        fields = {
            "subscription": SUBSCRIPTION,
            "stream_ack_deadline_seconds": 60,
            "protocol_version": 1,
            **first,
        }
        self.wire = wire
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.send(**{name: value for name, value in fields.items() if value is not None})
        self.call = wire.raw("StreamingPull")(iter(self._requests.get, None), timeout=TIMEOUT)

    def send(self, **fields: Any) -> None:
        self.send_raw(pubsub.StreamingPullRequest(**fields).SerializeToString())

    def send_raw(self, request: bytes) -> None:
        self._requests.put(request)

    def half_close(self) -> None:
        self._requests.put(None)

    def next(self) -> pubsub.StreamingPullResponse:
        """Return the next response, or raise when the stream has ended."""
        response: pubsub.StreamingPullResponse = next(self.call)
        return response

    def messages(self, count: int) -> list[pubsub.ReceivedMessage]:
        """Return exactly this many messages, from as many responses as necessary."""
        received: list[pubsub.ReceivedMessage] = []
        while len(received) < count:
            received.extend(self.next().received_messages)
        assert len(received) == count
        return received

    def data(self, count: int) -> list[str]:
        return [m.message.data.decode() for m in self.messages(count)]

    def is_quiet(self) -> bool:
        """Return whether the broker has no message for this stream, so that it answers a ping."""
        self.send()
        return not self.next().received_messages

    def end(self) -> grpc.StatusCode:
        """Wait until the stream has ended, and return its status."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError:
            # The status is checked below.
            pass
        code: grpc.StatusCode = self.call.code()
        return code

    def details(self) -> str:
        text: str = self.call.details()
        return text

    def cancel(self) -> None:
        self.call.cancel()
        self._requests.put(None)


def wait_until_idle(*streams: Stream) -> None:
    """Wait until the broker knows that each of these streams is open and has no message for it."""
    assert all(stream.is_quiet() for stream in streams)
    # A stream waits for messages again some turns of the broker's event loop after its pong.
    # Another call takes more turns.
    for stream in streams:
        project = SUBSCRIPTION.partition("/subscriptions/")[0]
        stream.wire.call("ListTopics", pubsub.ListTopicsRequest(project=project))


def data_of(received: list[pubsub.ReceivedMessage]) -> list[str]:
    return [m.message.data.decode() for m in received]


def ack_ids_of(received: list[pubsub.ReceivedMessage]) -> Iterator[str]:
    return (m.ack_id for m in received)
