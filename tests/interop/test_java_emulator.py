"""The SDK works against Google's own emulator, where one is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from pullstream import FlowControl, Message, SubscriberClient, TopicAdminClient
from pullstream.exceptions import AcknowledgeStatus
from tests.free_port import free_port
from tests.subscriber.behaviour.stage import Log
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

JAR_VARIABLE = "PULLSTREAM_JAVA_EMULATOR_JAR"
READY = re.compile(r"Server started, listening on \d+")
READY_WITHIN = 60.0
PROJECT = "projects/interop"


def find_jar() -> Path | None:
    """Return the jar from the environment, or from an installation of the gcloud SDK."""
    if given := os.environ.get(JAR_VARIABLE):
        return Path(given)
    gcloud = shutil.which("gcloud")
    roots = [Path("/usr/lib/google-cloud-sdk")]
    if gcloud is not None:
        # The command is a link into bin/ of the SDK.
        roots.append(Path(gcloud).resolve().parent.parent)
    jars = [jar for root in roots for jar in root.glob("platform/pubsub-emulator/lib/*-all.jar")]
    return max(jars, default=None)


JAR = find_jar()
JAVA = shutil.which("java")
pytestmark = pytest.mark.skipif(
    JAR is None or JAVA is None,
    reason=f"needs java and Google's Pub/Sub emulator (or {JAR_VARIABLE}=path of its jar)",
)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Yield the address of Google's emulator, started for this module."""
    address = f"127.0.0.1:{free_port()}"
    host, port = address.split(":")
    process = subprocess.Popen(
        [str(JAVA), "-Xmx256m", "-jar", str(JAR), f"--host={host}", f"--port={port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ready = threading.Event()

    def read() -> None:
        # To the end, because a full pipe would stop the emulator.
        for line in process.stdout or ():
            if READY.search(line):
                ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert ready.wait(READY_WITHIN), f"{JAR} did not start"
        yield address
    finally:
        process.terminate()
        process.wait(TIMEOUT)
        reader.join(TIMEOUT)
        if process.stdout is not None:
            process.stdout.close()


class Setup:
    """A topic and a subscription of one test alone.

    Version 0.8.20 keeps a cancelled stream registered, which swallows messages from then on, so no
    subscription is used twice.
    """

    def __init__(self, endpoint: str, *, ordering: bool = False) -> None:
        unique = uuid.uuid4().hex
        self.topic = f"{PROJECT}/topics/t-{unique}"
        self.subscription = f"{PROJECT}/subscriptions/s-{unique}"
        self.publisher = TopicAdminClient(endpoint=endpoint)
        self.client = SubscriberClient(endpoint=endpoint)
        self.publisher.create_topic(name=self.topic)
        self.client.create_subscription(
            request={
                "name": self.subscription,
                "topic": self.topic,
                "enable_message_ordering": ordering,
                "ack_deadline_seconds": 600,
            }
        )

    def publish(self, *data: str, key: str = "") -> None:
        messages = [{"data": one.encode(), "ordering_key": key} for one in data]
        self.publisher.publish(self.topic, messages)

    def close(self) -> None:
        self.client.close()
        self.publisher.close()


@pytest.fixture
def setup(endpoint: str) -> Iterator[Setup]:
    setup = Setup(endpoint)
    yield setup
    setup.close()


@pytest.fixture
def ordered(endpoint: str) -> Iterator[Setup]:
    setup = Setup(endpoint, ordering=True)
    yield setup
    setup.close()


def test_pullstream_receives_and_acknowledges_messages_of_googles_java_emulator(
    setup: Setup,
) -> None:
    """Each message comes once and unchanged, and the server confirms every acknowledgement."""
    answers: list[AcknowledgeStatus] = []

    def acknowledge(message: Message) -> None:
        answers.append(message.ack_with_response().result(TIMEOUT))

    collected = Log(acknowledge)
    future = setup.client.subscribe(setup.subscription, collected)
    setup.publish(*map(str, range(100)))
    collected.wait_for(100)
    assert sorted(map(int, collected.data)) == list(range(100))
    eventually(lambda: len(answers) == 100)
    assert set(answers) == {AcknowledgeStatus.SUCCESS}
    future.cancel()
    assert future.result(TIMEOUT) is True


def test_googles_java_emulator_redelivers_messages_after_nacks_and_failed_callbacks(
    setup: Setup,
) -> None:
    """The redelivery is on the same stream."""
    tries: dict[bytes, int] = defaultdict(int)

    def third_time_lucky(message: Message) -> None:
        tries[message.data] += 1
        if tries[message.data] == 1:
            message.nack()
        elif tries[message.data] == 2:
            raise ValueError("not yet")
        else:
            message.ack()

    setup.client.subscribe(setup.subscription, third_time_lucky)
    setup.publish("a", "b", "c")
    eventually(lambda: tries == {b"a": 3, b"b": 3, b"c": 3})


def test_pullstream_receives_the_messages_of_each_key_from_googles_java_emulator_in_order(
    ordered: Setup,
) -> None:
    """Many keys are in progress at the same time, each in its own order."""
    by_key: dict[str, list[int]] = defaultdict(list)

    def handle(message: Message) -> None:
        by_key[message.ordering_key].append(int(message.data))
        message.ack()

    for start in range(0, 50, 10):
        for key in ("a", "b", "c"):
            ordered.publish(*map(str, range(start, start + 10)), key=key)
    ordered.client.subscribe(ordered.subscription, handle)
    eventually(lambda: sum(map(len, by_key.values())) >= 150)
    assert by_key == {key: list(range(50)) for key in "abc"}


@pytest.mark.parametrize("verdict", ["nacks", "raises"])
def test_pullstream_repeats_a_nacked_message_of_googles_java_emulator_before_later_ones(
    ordered: Setup, verdict: str
) -> None:
    """The Java emulator redelivers only the failed message. The later ones stay leased here."""
    failing = {5: 3, 20: 2}
    begun: list[int] = []

    def handle(message: Message) -> None:
        number = int(message.data)
        begun.append(number)
        if failing.get(number):
            failing[number] -= 1
            if verdict == "raises":
                raise ValueError("not yet")
            message.nack()
        else:
            message.ack()

    future = ordered.client.subscribe(ordered.subscription, handle)
    ordered.publish(*map(str, range(50)), key="k")
    eventually(lambda: future.statistics().acked == 50)
    assert begun == [*range(5), *[5] * 3, *range(5, 20), *[20] * 2, *range(20, 50)]
    statistics = future.statistics()
    assert (statistics.nacked, statistics.returned, statistics.expired) == (5, 0, 0)


def test_googles_java_emulator_dead_letters_only_the_message_that_is_always_nacked(
    endpoint: str,
) -> None:
    """Without ordering: version 0.8.20 cannot forward a message of an ordered subscription."""
    setup, dead = Setup(endpoint), Setup(endpoint)
    policed = f"{setup.subscription}-policed"
    setup.client.create_subscription(
        request={
            "name": policed,
            "topic": setup.topic,
            "ack_deadline_seconds": 600,
            "dead_letter_policy": {
                "dead_letter_topic": dead.topic,
                "max_delivery_attempts": 5,
            },
        }
    )
    tries: dict[bytes, int] = defaultdict(int)

    def handle(message: Message) -> None:
        tries[message.data] += 1
        if message.data == b"poison":
            message.nack()
        else:
            message.ack()

    dead_letters = Log(Message.ack)
    dead.client.subscribe(dead.subscription, dead_letters)
    setup.client.subscribe(policed, handle)
    setup.publish("1", "poison", "2")
    dead_letters.wait_for(1)
    assert dead_letters.data == [b"poison"]
    eventually(lambda: set(tries) == {b"1", b"poison", b"2"})
    assert tries == {b"1": 1, b"poison": 5, b"2": 1}
    setup.close()
    dead.close()


def test_pullstreams_flow_control_limits_running_callbacks_with_googles_java_emulator(
    setup: Setup,
) -> None:
    """That emulator sends more than the limit. Callbacks begin only for the responses received."""
    collected = Log()
    setup.publish(*map(str, range(200)))
    setup.client.subscribe(setup.subscription, collected, FlowControl(max_messages=5))
    collected.wait_for(200)
    assert sorted(map(int, collected.data)) == list(range(200))


def test_pullstream_can_pull_acknowledge_and_nack_messages_of_googles_java_emulator(
    setup: Setup,
) -> None:
    """The calls pull, extend, return, pull again, and acknowledge."""
    setup.publish("a")
    client, subscription = setup.client, setup.subscription
    first = client.pull(subscription=subscription, max_messages=10, timeout=TIMEOUT)
    (one,) = first.received_messages
    assert one.message.data == b"a"
    for seconds in (30, 0):
        client.modify_ack_deadline(
            subscription=subscription, ack_ids=[one.ack_id], ack_deadline_seconds=seconds
        )
    second = client.pull(subscription=subscription, max_messages=10, timeout=TIMEOUT)
    (again,) = second.received_messages
    assert again.message.message_id == one.message.message_id
    client.acknowledge(subscription=subscription, ack_ids=[again.ack_id])


def test_a_cancelled_subscription_to_googles_java_emulator_ends_in_seconds(
    setup: Setup,
) -> None:
    """The client half-closes the stream, or cancels it if the server does not answer."""
    collected = Log()
    future = setup.client.subscribe(setup.subscription, collected)
    setup.publish("a")
    collected.wait_for(1)
    future.cancel()
    assert future.result(TIMEOUT) is True
