"""Mistakes of a user. Each must be reported on its line, by the rules in its comment."""

from pullstream import AckFuture, FlowControl, Message, SubscriberClient
from pullstream.types import Subscription

NAME = "projects/p/subscriptions/s"


def takes_data(data: bytes) -> None: ...


def takes_two(message: Message, attempt: int) -> None: ...


def handle(message: Message) -> None:
    message.data = b""  # mypy: misc; pyright: reportAttributeAccessIssue
    message.acknowledge()  # mypy: attr-defined; pyright: reportAttributeAccessIssue, reportUnknownMemberType  # noqa: E501
    message.modify_ack_deadline("60")  # mypy: arg-type; pyright: reportArgumentType
    attempt: int = message.delivery_attempt  # mypy: assignment; pyright: reportAssignmentType
    future: AckFuture = message.ack_with_response()
    code: int = future.result()  # mypy: assignment; pyright: reportAssignmentType
    print(attempt, code)


def subscribe(client: SubscriberClient) -> None:
    client.subscribe(NAME, takes_data)  # mypy: arg-type; pyright: reportArgumentType
    client.subscribe(NAME, takes_two)  # mypy: arg-type; pyright: reportArgumentType
    client.subscribe(NAME, None)  # mypy: arg-type; pyright: reportArgumentType
    client.subscribe(NAME.encode(), handle)  # mypy: arg-type; pyright: reportArgumentType
    client.subscribe(NAME, handle, max_worker=3)  # mypy: call-arg; pyright: reportCallIssue
    FlowControl(max_messages="10")  # mypy: arg-type; pyright: reportArgumentType
    FlowControl(max_message=10)  # mypy: call-arg; pyright: reportCallIssue


def call(client: SubscriberClient) -> None:
    SubscriberClient(endpoints="localhost")  # mypy: call-arg; pyright: reportCallIssue
    client.pull(subscription=NAME, max_messages="5")  # mypy: arg-type; pyright: reportArgumentType
    client.pull(subscription=NAME, retries=3)  # mypy: call-arg; pyright: reportCallIssue
    client.acknowledge(ack_ids=[1])  # mypy: list-item; pyright: reportArgumentType
    client.get_subscription(NAME)  # mypy: arg-type; pyright: reportArgumentType
    Subscription(ack_deadline="10")  # mypy: call-arg; pyright: reportCallIssue
