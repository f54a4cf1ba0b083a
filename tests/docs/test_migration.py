"""Tests of the migration guide.

Its snippets work, and with only the imports changed back they work with Google's client.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from pullstream import types
from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2
from tests.optional_tools import missing
from tests.subscriber.streaming.fakes import eventually

from . import guide
from .snippet_runner import DEAD_LETTERS, SUBSCRIPTION, TOPIC, SnippetRunner

# Snippets that only users of pullstream need.
NEW = {"Publish with Google's client"}

COVERED: set[str] = set()


def snippet(title: str) -> Callable[[Any], Any]:
    """Declare the snippet of a test, which gets a `runner` for each of the two clients."""
    COVERED.add(title)
    clients = ["pullstream"] if title in NEW else ["pullstream", "google"]
    return pytest.mark.parametrize("runner", clients, indirect=True)


def need_google() -> None:
    with suppress(ModuleNotFoundError):
        if importlib.util.find_spec("google.cloud.pubsub_v1") is not None:
            return
    missing("interop", "google-cloud-pubsub is not installed: pip install 'pullstream[interop]'")


@pytest.fixture
def runner(request: pytest.FixtureRequest, pubsub_emulator: Emulator) -> Iterator[SnippetRunner]:
    with_google = request.param == "google"
    if with_google:
        need_google()
        # A thread of Google's client may raise when its stream ends with an error.
        ignored = "ignore::pytest.PytestUnhandledThreadExceptionWarning"
        request.applymarker(pytest.mark.filterwarnings(ignored))
    runner = SnippetRunner(pubsub_emulator, with_google=with_google)
    yield runner
    runner.close()


def test_every_code_snippet_of_the_migration_guide_has_a_test() -> None:
    """A new snippet in the guide needs a test here."""
    assert set(guide.snippets()) == COVERED


def test_every_import_in_the_table_of_the_migration_guide_is_used_by_a_code_snippet() -> None:
    """Each row of the table is run with both clients."""
    lines = [line for code in guide.snippets().values() for line in code.splitlines()]
    unused = [
        row for row in guide.imports() if not any(line.startswith(row.after) for line in lines)
    ]
    assert unused == []


@pytest.mark.parametrize("title", sorted(guide.snippets().keys() - NEW))
def test_code_snippets_of_the_migration_guide_differ_from_official_code_only_in_imports(
    title: str,
) -> None:
    """The official form has no import of ours, and all other lines are equal."""
    after = guide.snippets()[title]
    before = guide.as_before(after)
    roots = {name.partition(".")[0] for name in imported(before)}
    assert "subscriber" not in roots
    assert any(name.startswith("google.cloud") for name in imported(before))
    assert not any(name.startswith("google.cloud") for name in imported(after))
    changed = [
        line
        for line, old in zip(after.splitlines(), before.splitlines(), strict=True)
        if line != old
    ]
    assert all(line.startswith(("import ", "from ")) for line in changed)


def imported(code: str) -> list[str]:
    """Return the modules that a snippet imports, or imports from."""
    names: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(f"{node.module}.{node.names[0].name}")
    return names


# Runs each snippet in a process that has imported nothing but pullstream, and prints the errors
# that show a wrong name. Other errors are the subject of other tests, which create resources.
FRESH_PROCESSES = """
import json, os, sys, traceback
import pullstream
for title, code in json.load(sys.stdin).items():
    child = os.fork()
    if not child:
        names = {
            "project_id": "project", "topic_id": "orders", "subscription_id": "billing",
            "dead_letter_topic_id": "failed", "timeout": 0.05, "process": lambda message: None,
        }
        try:
            exec(compile(code, title, "exec"), names)
        except (ImportError, AttributeError, NameError, TypeError):
            traceback.print_exc(file=sys.stdout)
        except Exception:
            pass
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_code_snippets_of_the_migration_guide_run_with_only_their_own_imports(
    pubsub_emulator: Emulator,
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESSES],
        input=json.dumps(guide.snippets()),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert "Traceback" not in ran.stdout


def test_the_module_pullstream_types_has_every_protobuf_message() -> None:
    """The names are those of the official client's `types`."""
    names = pubsub_pb2.DESCRIPTOR.message_types_by_name
    assert [name for name in names if getattr(types, name) is not getattr(pubsub_pb2, name)] == []


@snippet("Create a subscription")
def test_the_migration_snippet_creates_a_subscription(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker has it afterwards, and its name is printed."""
    runner.run("Create a subscription")
    assert runner.subscriptions() == [SUBSCRIPTION]
    assert capsys.readouterr().out == f"Subscription created: {SUBSCRIPTION}\n"


@snippet("Receive with a callback")
def test_the_migration_snippet_receives_messages_with_a_callback(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data and attributes are printed, and the message is acknowledged."""
    runner.subscription()
    runner.publish(b"two books", currency="EUR")
    runner.run_until(lambda: runner.backlog == 0, "Receive with a callback")
    assert capsys.readouterr().out.splitlines()[:2] == ["Received b'two books'", "currency: EUR"]


@snippet("Listen for errors")
def test_the_migration_snippet_handles_a_missing_subscription(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """`result()` raises NotFound. After its creation, the subscription delivers messages."""
    runner.run_until(lambda: runner.subscriptions() == [SUBSCRIPTION], "Listen for errors")
    assert capsys.readouterr().out == f"{SUBSCRIPTION} was not there; created it\n"
    runner.publish(b"data")
    runner.run_until(lambda: runner.backlog == 0, "Listen for errors")
    assert runner.processed == [b"data"]


@snippet("Limit the flow")
def test_the_migration_snippet_on_flow_control_limits_the_messages_in_flight(
    runner: SnippetRunner,
) -> None:
    """While ten messages are being handled, another client can get all others."""
    runner.subscription()
    runner.publish(*(b"%d" % number for number in range(25)))
    lock = threading.Lock()
    running: set[str] = set()
    free: list[list[bytes]] = []

    def process(message: Any) -> None:
        with lock:
            running.add(message.ack_id)
            if len(running) == 10:
                free.append(runner.pull())
        runner.wait_for_cancel()
        with lock:
            running.discard(message.ack_id)

    runner.process = process
    runner.run_until(lambda: bool(free), "Limit the flow")
    assert len(free[0]) == 15


@snippet("Run callbacks on your own threads")
def test_the_migration_snippet_on_executors_runs_callbacks_on_the_given_executor(
    runner: SnippetRunner,
) -> None:
    """The thread name begins with the prefix of the executor."""
    runner.subscription()
    runner.publish(b"data")
    threads: list[str] = []

    def process(message: Any) -> None:
        threads.append(threading.current_thread().name)
        message.ack()

    runner.process = process
    runner.run_until(lambda: runner.backlog == 0, "Run callbacks on your own threads")
    assert [name.partition("_")[0] for name in threads] == ["orders"]


@snippet("Wait for running callbacks at shutdown")
def test_the_migration_snippet_waits_for_running_callbacks_at_shutdown(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """The callback lasts longer than cancel(), its ack counts, and only then result() returns."""
    runner.subscription()
    runner.publish(b"data")

    def process(message: Any) -> None:
        runner.wait_for_cancel()
        # Longer than a shutdown that does not wait.
        with suppress(TimeoutError):
            runner.names["future"].result(timeout=0.5)

    runner.process = process
    runner.run_until(lambda: runner.backlog == 0, "Wait for running callbacks at shutdown")
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == ["Done processing b'data'", "Done waiting"]


@snippet("Exactly-once delivery")
def test_the_migration_snippet_on_exactly_once_delivery_prints_the_results_of_acks(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ack of a valid ack id succeeds, and the ack of an ended lease raises the error."""
    runner.subscription(enable_exactly_once_delivery=True)
    (first,) = runner.publish(b"data")
    runner.process = lambda message: None
    runner.run_until(lambda: runner.backlog == 0, "Exactly-once delivery")
    assert f"Ack for message {first} successful.\n" in capsys.readouterr().out

    (second,) = runner.publish(b"data")
    taken_back: list[str] = []
    error = f"Ack for message {second} failed with error: AcknowledgeStatus.INVALID_ACK_ID\n"
    printed = ""

    def lose_the_lease(message: Any) -> None:
        nonlocal printed
        if not taken_back:
            taken_back.append(message.ack_id)
            runner.take_back(message)
        # Otherwise both acknowledgements could be in one request, and Google's client would repeat
        # the second one on a thread that outlives the client.
        while message.ack_id not in taken_back and error not in printed:
            printed += capsys.readouterr().out

    runner.process = lose_the_lease
    runner.run_until(lambda: runner.backlog == 0, "Exactly-once delivery")
    assert error in printed + capsys.readouterr().out


@snippet("Keep the order of messages")
def test_the_migration_snippet_on_ordering_receives_the_messages_of_a_key_in_order(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """The subscription keeps order for every subscriber."""
    runner.run("Keep the order of messages")
    assert runner.describe().enable_message_ordering
    runner.publish(*(b"%d" % number for number in range(20)), key="anna")
    runner.run_until(lambda: runner.backlog == 0, "Receive with a callback")
    printed = list(dict.fromkeys(capsys.readouterr().out.splitlines()))
    assert printed == [f"Received {b'%d' % number!r}" for number in range(20)]


@snippet("Count delivery attempts")
def test_the_migration_snippet_on_dead_letters_prints_the_delivery_attempt_of_a_message(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """The broker stores the policy, and a message that was nacked twice has attempt 3."""

    def process(message: Any) -> None:
        if message.delivery_attempt < 3:
            message.nack()
        else:
            message.ack()

    runner.process = process
    runner.run("Count delivery attempts")
    runner.publish(b"data")
    assert runner.wait_for_processed(3) == [b"data"] * 3
    runner.close_snippet()
    policy = runner.describe().dead_letter_policy
    assert (policy.dead_letter_topic, policy.max_delivery_attempts) == (DEAD_LETTERS, 10)
    expected = [f"With delivery attempts: {attempt}." for attempt in (1, 2, 3)]
    assert capsys.readouterr().out.splitlines() == expected
    assert runner.backlog == 0


@snippet("Pull and acknowledge")
def test_the_migration_snippet_on_pull_pulls_and_acknowledges_messages(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three of four messages are printed and acknowledged."""
    runner.subscription()
    runner.publish(b"a", b"b", b"c", b"d")
    runner.run("Pull and acknowledge")
    expected = ["Received: b'a'.", "Received: b'b'.", "Received: b'c'."]
    assert capsys.readouterr().out.splitlines() == expected
    assert runner.pull() == [b"d"]
    assert runner.backlog == 1


@snippet("Extend and return pulled messages")
def test_the_migration_snippet_on_leases_extends_and_nacks_pulled_messages(
    runner: SnippetRunner,
) -> None:
    """Only the returned message is free for others, and both are unacknowledged."""
    runner.subscription()
    runner.publish(b"now")
    runner.publish(b"then", later="yes")
    runner.run("Extend and return pulled messages")
    assert runner.pull() == [b"then"]
    assert runner.backlog == 2


@snippet("Manage subscriptions")
def test_the_migration_snippet_lists_updates_and_deletes_subscriptions(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call is answered, and at the end there is no subscription."""
    runner.subscription()
    runner.run("Manage subscriptions")
    assert capsys.readouterr().out.splitlines() == [SUBSCRIPTION, "After the update: 30"]
    assert runner.subscriptions() == []


@snippet("Publish messages")
def test_the_migration_snippet_publishes_messages(runner: SnippetRunner) -> None:
    """The messages are sent one by one, with attributes."""
    runner.run("Publish messages")
    messages = runner.broker.messages(TOPIC)
    assert [one.message_id for one in messages] == runner.names["message_ids"]
    assert [one.data for one in messages] == [b"Message number %d" % n for n in range(1, 10)]
    assert dict(messages[0].attributes) == {"origin": "python-sample", "username": "gcp"}


@snippet("Publish with batch settings and callbacks")
def test_the_migration_snippet_on_batches_publishes_messages_in_batches(
    runner: SnippetRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each callback prints the ID of its message."""
    runner.run("Publish with batch settings and callbacks")
    runner.close_snippet()
    eventually(lambda: len(runner.broker.messages(TOPIC)) == 9)
    ids = {one.message_id for one in runner.broker.messages(TOPIC)}
    printed: list[str] = []

    def all_printed() -> bool:
        printed.extend(capsys.readouterr().out.split())
        return set(printed) == ids

    eventually(all_printed)


@snippet("Publish with ordering keys")
def test_the_migration_snippet_on_ordering_keys_publishes_messages_with_ordering_keys(
    runner: SnippetRunner,
) -> None:
    """The messages are stored in the order of the calls."""
    runner.run("Publish with ordering keys")
    found = [(one.data, one.ordering_key) for one in runner.broker.messages(TOPIC)]
    assert found == [(b"message1", "key1"), (b"message2", "key2"), (b"message3", "key1")]


@snippet("Publish with flow control and retry settings")
def test_the_migration_snippet_on_publisher_flow_control_publishes_all_messages(
    runner: SnippetRunner,
) -> None:
    """All messages are published, after waits for room."""
    runner.run("Publish with flow control and retry settings")
    assert len(set(runner.names["message_ids"])) == 1000
    assert len(runner.broker.messages(TOPIC)) == 1000


@snippet("Publish with Google's client")
def test_the_migration_snippet_can_use_googles_publisher_beside_pullstreams_subscriber(
    runner: SnippetRunner,
) -> None:
    """Both run in one process, and the subscriber receives the published message."""
    need_google()
    seen: list[tuple[str, dict[str, str]]] = []

    def process(message: Any) -> None:
        seen.append((message.message_id, dict(message.attributes)))
        message.ack()

    runner.process = process
    runner.subscription()
    runner.run("Publish with Google's client")
    assert runner.wait_for_processed(1) == [b"My first message!"]
    assert seen == [(runner.names["message_id"], {"spam": "eggs"})]


def test_the_replacements_for_proto_plus_in_the_migration_guide_work_as_described() -> None:
    """The guide has them in the second column of its table."""
    url = "https://example.com"
    names: dict[str, Any] = {"name": TOPIC}
    assert types.Topic(**names).name == TOPIC
    subscription = types.Subscription()
    subscription.push_config.push_endpoint = url
    other = types.Subscription()
    other.push_config.CopyFrom(types.PushConfig(push_endpoint=url))
    assert subscription == other
    subscription.message_retention_duration.FromTimedelta(timedelta(hours=1))
    assert subscription.message_retention_duration.seconds == 3600
    topic = types.Topic()
    topic.labels.update(team="a")
    assert MessageToDict(topic) == {"labels": {"team": "a"}}
    assert types.Subscription.State.Name(types.Subscription.State.ACTIVE) == "ACTIVE"
