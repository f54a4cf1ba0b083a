"""subscribe(), from a publisher to a callback and back, against a broker on loopback."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from pullstream import Message, ThreadScheduler
from pullstream.exceptions import AcknowledgeStatus
from tests.subscriber.behaviour.stage import SUBSCRIPTION, Log, Stage
from tests.subscriber.streaming.fakes import TIMEOUT, eventually


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# ---- dispositions ------------------------------------------------------------------------------


def test_acknowledged_messages_leave_the_backlog_of_the_subscription(here: Stage) -> None:
    """Each message came once and complete, and the server has none left."""
    seen: dict[str, Message] = {}

    def handle(message: Message) -> None:
        seen[message.message_id] = message
        message.ack()

    here.client.subscribe(SUBSCRIPTION, handle)
    published = here.publish(*numbered(50))
    eventually(lambda: here.backlog == 0)
    assert sorted(seen) == sorted(published)
    assert sorted(message.data for message in seen.values()) == sorted(numbered(50))
    assert all(message.publish_time.year >= 2020 for message in seen.values())


def test_the_future_of_ack_with_response_has_the_servers_answer(here: Stage) -> None:
    """The futures of `ack_with_response` and similar methods have the server's answer."""
    answers: list[AcknowledgeStatus] = []

    def handle(message: Message) -> None:
        answers.append(message.modify_ack_deadline_with_response(30).result(TIMEOUT))
        settle = message.nack_with_response if len(answers) == 1 else message.ack_with_response
        answers.append(settle().result(TIMEOUT))

    here.client.subscribe(SUBSCRIPTION, handle)
    here.publish(b"a")
    eventually(lambda: len(answers) == 4)
    assert set(answers) == {AcknowledgeStatus.SUCCESS}
    assert here.backlog == 0


# ---- threads of callbacks ----------------------------------------------------------------------


def test_message_callbacks_can_run_on_an_executor_of_the_user(here: Stage) -> None:
    """The executor is passed in the official client's form."""
    together = threading.Barrier(5)

    def meet(message: Message) -> None:
        together.wait(TIMEOUT)
        assert threading.current_thread().name.startswith("mine")
        message.ack()

    with ThreadPoolExecutor(5, thread_name_prefix="mine") as executor:
        scheduler = ThreadScheduler(executor)
        future = here.client.subscribe(SUBSCRIPTION, meet, scheduler=scheduler)
        here.publish(*numbered(50))
        eventually(lambda: here.backlog == 0)
        future.cancel()
        assert future.result(TIMEOUT) is True


def test_two_subscribers_of_one_subscription_together_get_each_message_once(here: Stage) -> None:
    """Two subscribers of the same subscription get each message once."""
    first, second = Log(), Log()
    here.client.subscribe(SUBSCRIPTION, first)
    here.client.subscribe(SUBSCRIPTION, second)
    for data in numbered(40):
        here.publish(data)
    eventually(lambda: here.backlog == 0)
    assert sorted(first.data + second.data) == sorted(numbered(40))
