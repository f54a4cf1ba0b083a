"""One run: a program, a subscription of its own, and the truth about it afterwards."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pullstream import SubscriberClient, TopicAdminClient

from .events import SUCCESS, Event, Figures, Truth, figures, reading
from .scenarios import Scenario

PROJECT = "clients"
TOPIC = f"projects/{PROJECT}/topics/numbers"
NAME = "receiver"
SUBSCRIPTION = f"projects/{PROJECT}/subscriptions/{NAME}"
SHADOW = f"projects/{PROJECT}/subscriptions/shadow"

# The largest number of messages in a Publish request, and of ids in a request of ours.
REQUEST = 1000

# The subscription's ack deadline, in seconds. A lease that a client has extended ends later.
ACK_DEADLINE = 10
# How long another consumer looks for messages of a killed program: less than the ack deadline,
# because the leases began before.
WATCH = 8.0
# How long a program that was told to stop still holds its messages.
STOPPING = 3.0

# How long nacked messages may take to come again.
REDELIVERED = 2.0

# The time limits of the parts of a run, in seconds.
ALL_DELIVERED = 30.0
NACKS = 60.0
READING = 120.0
RESULTS = 30.0
END = 30.0
# How often the backlog is read while a program still receives messages.
READ_BACKLOG = 5.0


class Process:
    """A running program, with the events that it has printed so far.

    `log` gets what it prints on standard error, and its lines are copied to a file beside the log.
    One thread reads its output. All methods are called by the thread that created it.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._copy = log.with_suffix(".events")
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._lock = threading.Lock()
        self._events: list[Event] = []
        # Of the last event: the program's clock minus ours.
        self._offset = 0.0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)

    @property
    def now(self) -> float:
        """The program's clock."""
        return time.monotonic() + self._offset

    def wait_for(self, condition: Callable[[Sequence[Event]], bool], timeout: float) -> bool:
        """Wait until the condition is true for the events, or the program has ended.

        Returns:
            Whether the condition is true.
        """
        end = time.monotonic() + timeout
        while not condition(self.events):
            if time.monotonic() > end or not self._reader.is_alive():
                return False
            # In slices, because a look after each event would slow the program down.
            self._reader.join(0.1)
        return True

    def command(self, *commands: str, last: bool = False) -> None:
        """Send commands, and close the program's input after the last one."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.writelines(f"{command}\n" for command in commands)
            stdin.flush()
            if last:
                stdin.close()
        except BrokenPipeError:
            # The program has ended. `ended` tells how.
            pass

    def kill(self) -> None:
        self._process.kill()
        self._finish()

    def ended(self, timeout: float) -> bool:
        """Wait for the program's end, and kill it after the timeout.

        Returns:
            Whether it ended by itself, without an error.
        """
        try:
            return self._process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            self._process.kill()
            self._finish()

    def _finish(self) -> None:
        self._process.wait()
        self._reader.join(END)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                pipe and pipe.close()

    def _read(self) -> None:
        with self._copy.open("w") as copy:
            for line in self._process.stdout or ():
                copy.write(line)
                event = Event.parse(line)
                with self._lock:
                    self._events.append(event)
                self._offset = event.seconds - time.monotonic()


class Subscription:
    """The subscription of one run on a fresh broker, and its shadow, which shows its backlog."""

    def __init__(self, endpoint: str, scenario: Scenario) -> None:
        self._endpoint = endpoint
        self._scenario = scenario
        self._admin = TopicAdminClient(endpoint=endpoint)
        self._client = SubscriberClient(endpoint=endpoint)
        self._reads = 0

    def create(self) -> None:
        """Create topic and subscriptions, and publish the messages."""
        scenario = self._scenario
        self._admin.create_topic(name=TOPIC)
        self._client.create_subscription(
            request={"name": SHADOW, "topic": TOPIC, "retain_acked_messages": True}
        )
        # Stale messages do not come again during the run. Nacked ones must, to show the nack.
        policy = {"minimum_backoff": {"seconds": 600}, "maximum_backoff": {"seconds": 600}}
        self._client.create_subscription(
            request={
                "name": SUBSCRIPTION,
                "topic": TOPIC,
                "ack_deadline_seconds": ACK_DEADLINE,
                "enable_exactly_once_delivery": scenario.exactly_once,
                "enable_message_ordering": scenario.ordered,
                **({"retry_policy": policy} if scenario.stale and scenario.answer == "ack" else {}),
            }
        )
        # A message of each key in turn, so that each response has many keys. Without order there
        # are no keys, because the Python client delivers one message per key at a time.
        messages = [
            {
                "data": str(number).encode(),
                "ordering_key": f"key-{number // scenario.per_key}" if scenario.ordered else "",
            }
            for place in range(scenario.per_key)
            for number in range(place, scenario.messages, scenario.per_key)
        ]
        for begin in range(0, len(messages), REQUEST):
            self._admin.publish(TOPIC, messages[begin : begin + REQUEST])

    def left(self) -> frozenset[int]:
        """Return the numbers of the messages in the backlog. They stay there, leased or not.

        A snapshot of a subscription has all its messages that were not acknowledged. The shadow
        starts from it, and has no leases.
        """
        self._reads += 1
        snapshot = f"projects/{PROJECT}/snapshots/read-{self._reads}"
        self._client.create_snapshot(request={"name": snapshot, "subscription": SUBSCRIPTION})
        self._client.seek(request={"subscription": SHADOW, "snapshot": snapshot})
        self._client.delete_snapshot(request={"snapshot": snapshot})
        found: set[int] = set()
        empty = 0
        # Google's emulator needs up to 50 ms to fill an answer.
        while empty < 3:
            numbers, ack_ids = self._pull(SHADOW)
            if ack_ids:
                found.update(numbers)
                self._client.acknowledge(request={"subscription": SHADOW, "ack_ids": ack_ids})
            else:
                empty += 1
                time.sleep(0.1)
        return frozenset(found)

    def watch(self, seconds: float) -> set[int]:
        """Receive messages as another consumer for some time, and return their numbers."""
        end = time.monotonic() + seconds
        found: set[int] = set()
        while time.monotonic() < end:
            numbers, _ = self._pull(SUBSCRIPTION)
            found.update(numbers)
            time.sleep(0.1)
        return found

    def nack(self, ack_ids: Sequence[str]) -> None:
        """Nack some messages of the program as another client."""
        for begin in range(0, len(ack_ids), REQUEST):
            self._client.modify_ack_deadline(
                request={
                    "subscription": SUBSCRIPTION,
                    "ack_ids": ack_ids[begin : begin + REQUEST],
                    "ack_deadline_seconds": 0,
                }
            )

    def delete(self) -> None:
        self._client.delete_subscription(request={"subscription": SUBSCRIPTION})

    def set_fault(self, fault: str) -> None:
        """Set a fault of our broker."""
        request = urllib.request.Request(
            f"http://{self._endpoint}/v0/admin/faults",
            json.dumps({"fault": fault}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=END).close()

    def close(self) -> None:
        self._client.close()
        self._admin.close()

    def _pull(self, subscription: str) -> tuple[list[int], list[str]]:
        response = self._client.pull(
            request={
                "subscription": subscription,
                "max_messages": REQUEST,
                "return_immediately": True,
            }
        )
        received = response.received_messages
        return [int(each.message.data) for each in received], [each.ack_id for each in received]


def run(command: Sequence[str], scenario: Scenario, endpoint: str, log: Path) -> Figures:
    """Run a program on a broker that has nothing yet. `log` gets its standard error."""
    task = {
        "endpoint": endpoint,
        "project": PROJECT,
        "subscription": NAME,
        "messages": scenario.messages,
        "nack_every": scenario.nack_every,
        "hold": scenario.hold,
        "answer": scenario.answer,
        "admin": scenario.admin,
    }
    line = [*command, json.dumps(task)]
    if scenario.admin:
        return administrate(line, log)
    subscription = Subscription(endpoint, scenario)
    try:
        subscription.create()
        process = Process(line, log)
        try:
            if scenario.pipeline:
                return read(process, scenario)
            return conduct(process, subscription, scenario)
        finally:
            process.kill()
    finally:
        subscription.close()


def administrate(line: Sequence[str], log: Path) -> Figures:
    process = Process(line, log)
    is_ended = process.ended(NACKS)
    calls = process.events
    failed = sum(event.detail != SUCCESS for event in calls)
    return {"not_ended": not (is_ended and calls), "failed_calls": failed}


def read(process: Process, scenario: Scenario) -> Figures:
    """Let a pipeline read all messages, and return the figures."""
    process.wait_for(
        lambda events: len({event.number for event in events}) == scenario.messages, READING
    )
    process.command(last=True)
    is_ended = process.ended(END)
    per_key = scenario.per_key if scenario.ordered else 0
    found = reading(process.events, messages=scenario.messages, per_key=per_key)
    return {"not_ended": not is_ended, **found}


def conduct(process: Process, subscription: Subscription, scenario: Scenario) -> Figures:
    """Lead a program through the scenario, and return the figures."""
    early: set[int] = set()
    nacked: set[int] = set()
    stale: dict[int, str] = {}
    if scenario.hold:
        process.wait_for(lambda events: len(first_ids(events)) == scenario.messages, ALL_DELIVERED)
        held = first_ids(process.events)
        # The stale ids are spread over the requests, because clients send ids in order of delivery.
        step = scenario.messages / scenario.stale if scenario.stale else 0
        chosen = {int(place * step) for place in range(scenario.stale)}
        stale = {number: held[number] for number in chosen if number in held}
        subscription.nack(list(stale.values()))
        if scenario.deleted:
            subscription.delete()
        if scenario.fault:
            subscription.set_fault(scenario.fault)
    if scenario.ending == "kill":
        process.kill()
        return {"early": len(subscription.watch(WATCH))}
    end = 0.0
    if scenario.ending == "stop":
        process.command("stop")
        early = subscription.watch(STOPPING)
        process.command("answer", last=True)
    elif scenario.hold:
        process.command("answer")
        process.wait_for(lambda events: has_all_results(events, scenario), RESULTS)
        if scenario.answer == "nack":
            nacked = subscription.watch(REDELIVERED)
        process.command("stop", last=True)
    else:
        wait_for_all(process, subscription, scenario)
        end = process.now
        process.command("stop", last=True)
    is_ended = process.ended(END)
    # Messages whose nack was taken were acknowledged when they came again, or are nacked now.
    left = range(scenario.messages) if scenario.deleted else subscription.left() - nacked
    found = figures(
        process.events,
        Truth(frozenset(left), len(early), frozenset(stale)),
        messages=scenario.messages,
        per_key=scenario.per_key,
        answer=scenario.answer,
        exactly_once=scenario.exactly_once,
        ordered=scenario.ordered,
        end=end,
    )
    return {"not_ended": not is_ended, **found}


def wait_for_all(process: Process, subscription: Subscription, scenario: Scenario) -> None:
    """Wait until all messages were acknowledged."""
    end = time.monotonic() + NACKS
    while time.monotonic() < end:
        # Without exactly-once delivery the client reports success before it acknowledges.
        if (
            process.wait_for(lambda events: has_all_results(events, scenario), READ_BACKLOG)
            and scenario.exactly_once
        ):
            return
        # Messages that were taken, but reported as failed, do not come again.
        if not subscription.left():
            return


def has_all_results(events: Sequence[Event], scenario: Scenario) -> bool:
    """Tell whether the program knows a result for each message that it answered.

    Without held messages, the result must be a success: other messages come again.
    """
    kind = f"{scenario.answer}-result"
    return scenario.messages == len(
        {
            event.number
            for event in events
            if event.kind == kind and (scenario.hold or event.detail == SUCCESS)
        }
    )


def first_ids(events: Sequence[Event]) -> dict[int, str]:
    """Return the ack id of the first delivery of each message."""
    found: dict[int, str] = {}
    for event in events:
        if event.kind == "delivered":
            found.setdefault(event.number, event.detail)
    return found
