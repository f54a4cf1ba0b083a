"""Each sample does the work that its docstring describes, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from pullstream import PublisherClient, PublisherOptions, SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.completed import run_command
from tests.free_port import free_port
from tests.subscriber.streaming.fakes import eventually

ROOT = Path(__file__).parents[2]
TOPIC = "projects/test-project/topics/sample"
SUBSCRIPTION = "projects/test-project/subscriptions/sample"
# Samples import the same packages as the test.
SEARCH_PATH = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def environment() -> dict[str, str]:
    # google-api-core warns of a Python near its end of life, which the sample does not cause.
    warnings = "error,ignore::FutureWarning"
    return {**os.environ, "PYTHONPATH": SEARCH_PATH, "PYTHONWARNINGS": warnings}


def start(*command: str) -> subprocess.Popen[str]:
    """Start a sample that runs until something happens."""
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return run_command([sys.executable, *command], cwd=ROOT, env=environment())


@pytest.fixture
def subscription(pubsub_emulator: Emulator) -> str:
    """Create a subscription that keeps order, on the broker from the environment."""
    with TopicAdminClient() as topics, SubscriberClient() as client:
        topics.create_topic(name=TOPIC)
        client.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
        )
    return SUBSCRIPTION


def publish(lines: Sequence[str], key: str = "") -> None:
    with TopicAdminClient() as topics:
        topics.publish(TOPIC, [{"data": line.encode(), "ordering_key": key} for line in lines])


def test_the_receive_sample_prints_and_acknowledges_published_messages(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """receive.py handles every message and leaves nothing behind."""
    publish(["one", "two"])
    result = run("samples/receive.py", subscription)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["received 'one'", "received 'two'"]
    assert pubsub_emulator.backlog(subscription) == 0


def test_the_pull_sample_prints_and_acknowledges_available_messages(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """pull.py prints the messages and acknowledges them."""
    publish(["one", "two"])
    result = run("samples/pull.py", subscription)
    assert result.stdout.splitlines() == ["pulled 'one'", "pulled 'two'", "acknowledged 2 messages"]
    assert pubsub_emulator.backlog(subscription) == 0


def test_the_drain_backlog_sample_prints_the_sum_of_the_numbers_in_the_backlog_and_ends(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """drain_backlog.py adds up the numbers, and leaves other messages."""
    publish([*(str(number) for number in range(100)), "many"])
    result = run("samples/drain_backlog.py", subscription)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "sum 4950, 1 left\n"
    assert pubsub_emulator.backlog(subscription) == 1


def test_the_process_in_order_sample_handles_the_messages_of_each_customer_in_order(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """process_in_order.py prints each customer's messages in the order of publishing."""
    numbers = [str(number) for number in range(50)]
    publish(numbers, key="anna")
    publish(numbers, key="bert")
    result = run("samples/process_in_order.py", subscription)
    expected = " ".join(numbers)
    assert result.stdout.splitlines() == [f"anna: {expected}", f"bert: {expected}"]
    assert pubsub_emulator.backlog(subscription) == 0


def test_the_limit_flow_sample_handles_at_most_four_messages_at_a_time(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """limit_flow.py handles everything, at most four messages at the same time."""
    publish([str(number) for number in range(100)])
    result = run("samples/limit_flow.py", subscription)
    words = result.stdout.split()
    assert words[:3] == ["handled", "100", "messages,"], result.stderr
    assert 1 <= int(words[5]) <= 4
    assert pubsub_emulator.backlog(subscription) == 0


def test_the_observe_sample_serves_prometheus_metrics_while_it_runs(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """observe.py counts the messages it handles, for Prometheus and in its last lines."""
    publish(["one", "two"])
    # Port 0 takes a free port, which the first line shows.
    with start("samples/observe.py", subscription, "0") as sample:
        assert sample.stdout is not None
        page = sample.stdout.readline().removeprefix("metrics: ").strip()
        acked = f'pullstream_acked_total{{subscription="{subscription}"}} 2.0'
        eventually(lambda: acked in urlopen(page).read().decode())
        state, latency = sample.stdout.read().splitlines()
    assert sample.returncode == 0
    assert state == "closed: received 2, acked 2"
    assert latency.startswith("99 of 100 messages were acked within 0.")
    assert pubsub_emulator.backlog(subscription) == 0


def test_the_handle_once_sample_handles_each_order_once_despite_duplicate_messages(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """handle_once.py handles each order once, and acknowledges all its messages."""
    with TopicAdminClient() as topics:
        order: dict[str, object] = {"data": b"a book", "attributes": {"order-id": "7"}}
        topics.publish(TOPIC, [order, order, {"data": b"a pen"}])
    result = run("samples/handle_once.py", subscription)
    assert result.returncode == 0, result.stderr
    *charged, last = result.stdout.splitlines()
    assert sorted(charged) == ["charged a book", "charged a pen"]
    # The second may have been delayed while the first was handled.
    assert (last, pubsub_emulator.backlog(subscription)) in (
        ("skipped 1 duplicates", 0),
        ("skipped 0 duplicates", 1),
    )


def test_the_build_totals_sample_counts_every_order_once_over_several_runs(
    pubsub_emulator: Emulator, tmp_path: Path
) -> None:
    """build_totals.py continues after the end of its last run."""
    command = ["samples/build_totals.py", TOPIC, str(tmp_path / "totals.db")]
    with SubscriberClient() as client:
        orders = [("anna", b"500"), ("bert", b"250"), ("anna", b"30")]
        records = [{"data": data, "attributes": {"customer": name}} for name, data in orders]
        client.feeds.append(TOPIC, records)
        result = run(*command)
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines() == ["anna: 530", "bert: 250", "3 orders in this run"]
        client.feeds.append(TOPIC, records[:1])
    result = run(*command)
    assert result.stdout.splitlines() == ["anna: 1030", "bert: 250", "1 orders in this run"]


def test_the_fan_out_sample_sends_each_reader_the_messages_of_the_readers_topic(
    pubsub_emulator: Emulator,
) -> None:
    """fan_out.py prints the messages of each reader's topic, in order."""
    result = run("samples/fan_out.py", TOPIC)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    web, mobile = f"{TOPIC}-web: ", f"{TOPIC}-mobile: "
    assert [line for line in lines if line.startswith(web)] == [
        f"{web}public:news",
        f"{web}public:mobile-news",
    ]
    assert [line for line in lines if line.startswith(mobile)] == [f"{mobile}public:mobile-news"]
    assert len(lines) == 3


def test_the_tail_topic_sample_prints_new_records_and_which_ones_it_has_missed() -> None:
    """tail_topic.py needs nothing of pullstream, and ends with its topic."""
    with Emulator(rest=True) as broker:
        base = f"http://{broker.endpoint}"

        def post(path: str, content: object) -> None:
            urlopen(f"{base}/v0/topics/orders{path}", json.dumps(content).encode()).close()

        urlopen(Request(f"{base}/v0/topics/orders", b'{"cap_records": 2}', method="PUT")).close()
        post("", {"records": [{"data": number} for number in range(5)]})
        with start("samples/tail_topic.py", base, "orders") as sample:
            assert sample.stdout is not None
            assert [sample.stdout.readline() for _ in range(2)] == ["3\n", "4\n"]
            post("", {"records": [{"data": {"text": "hello"}}]})
            assert sample.stdout.readline() == '{"text": "hello"}\n'
            urlopen(Request(f"{base}/v0/topics/orders", method="DELETE")).close()
            assert sample.communicate(timeout=60) == ("", "missed 1 to 3: from_seq_too_old\n")
        assert sample.returncode == 0


def test_the_tail_topic_sample_waits_until_its_topic_exists() -> None:
    """The sample may start before the first record."""
    with Emulator(rest=True) as broker:
        base = f"http://{broker.endpoint}"
        with start("samples/tail_topic.py", base, "orders") as sample:
            assert sample.stdout is not None
            assert sample.stderr is not None
            assert sample.stderr.readline() == "retrying in 2 s: HTTP Error 404: Not Found\n"
            topic = f"{base}/v0/topics/orders"
            urlopen(topic, b'{"records": [{"data": "hello"}]}').close()
            assert sample.stdout.readline() == '"hello"\n'
            urlopen(Request(topic, method="DELETE")).close()
            assert sample.wait(60) == 0


def test_the_work_sample_handles_messages_as_a_callback_of_the_worker_command(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """work.py handles messages under `pullstream worker`."""
    publish(["one"])
    command = ["-m", "pullstream", "worker", "work:handle", "--subscription", subscription]
    with subprocess.Popen(
        [sys.executable, *command, "--processes", "1"],
        cwd=ROOT / "samples",
        env={**os.environ, "PYTHONPATH": SEARCH_PATH},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stderr is not None
        assert worker.stderr.readline().endswith("handled 'one'\n")
        worker.terminate()
        _, remarks = worker.communicate()
    assert worker.returncode == 0, remarks
    assert pubsub_emulator.backlog(subscription) == 0


def test_the_sample_test_that_uses_the_emulator_fixture_passes() -> None:
    """test_with_fixture.py is a test, and it passes."""
    result = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "samples/test_with_fixture.py")
    assert result.returncode == 0, result.stdout


def test_the_demo_sample_prints_a_line_for_each_guarantee_that_it_has_verified() -> None:
    """demo.py exits with 0, and prints a line for each guarantee that it has verified."""
    result = run("samples/demo.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("  ok  ") == 4
    assert "BROKEN" not in result.stdout
    assert result.stderr == ""


def test_the_demo_sample_publishes_each_line_of_a_given_file_as_a_record(tmp_path: Path) -> None:
    """A file of lines, some empty, is published with one record per line."""
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(["", *(f"line {number} ä" for number in range(500)), ""]))
    result = run("samples/demo.py", "--file", str(path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "500 records" in result.stdout


@pytest.mark.parametrize(("content", "says"), [(None, "cannot read"), ("\n\n", "has no records")])
def test_the_demo_sample_exits_with_an_error_for_a_missing_or_empty_input_file(
    tmp_path: Path, content: str | None, says: str
) -> None:
    """A file that is missing or empty ends the demo with 1 and one clear line."""
    path = tmp_path / "lines.txt"
    if content is not None:
        path.write_text(content)
    result = run("samples/demo.py", "--file", str(path))
    assert result.returncode == 1
    assert says in result.stderr
    assert result.stdout == ""


def test_the_track_jobs_sample_prints_how_each_job_ended() -> None:
    """track_jobs.py needs no broker: its two components talk directly."""
    result = run("samples/track_jobs.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        *("copy: 50 %", "index: 50 %", "copy: 100 %", "index: 100 %"),
        "mail has failed: no such address",
    ]


def test_the_redrive_sample_publishes_dead_letters_to_their_original_topic(
    pubsub_emulator: Emulator, subscription: str
) -> None:
    """redrive.py publishes copies without the attributes of dead-lettering."""
    dead = "projects/test-project/topics/dead"
    dead_letters = "projects/test-project/subscriptions/dead"
    with SubscriberClient() as client, PublisherClient() as publisher:
        publisher.create_topic(name=dead)
        client.create_subscription(name=dead_letters, topic=dead)
        publisher.publish(TOPIC, b"order", origin="shop").result(10)
        (message,) = client.fetch(subscription)
        message.reject("no such customer", dead)
        pubsub_emulator.wait_until_acked(subscription)
        result = run("samples/redrive.py", dead_letters, TOPIC)
        assert result.stdout == "1 moved\n", result.stderr
        (again,) = client.fetch(subscription)
        assert (again.data, dict(again.attributes)) == (b"order", {"origin": "shop"})
    assert pubsub_emulator.backlog(dead_letters) == 0


RESULTS = "projects/test-project/topics/results"
RESULTS_SUBSCRIPTION = "projects/test-project/subscriptions/results"


@contextmanager
def broker_process(port: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a broker that writes every message to the disk, and kill it at the end."""
    command = [
        *(sys.executable, "-m", "pullstream_emulator", "--port", str(port)),
        *("--data-dir", str(folder), "--durability", "fsync"),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        try:
            assert any("listening on" in line for line in broker.stdout)
            yield broker
        finally:
            broker.kill()


# A message that was on its way when a broker was killed comes again after a minute.
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_the_transform_sample_loses_no_message_when_the_broker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transform.py acknowledges a message after its result, and keeps the order of each key."""
    port = free_port()
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{port}")
    ordered = PublisherOptions(enable_message_ordering=True)
    with broker_process(port, tmp_path), PublisherClient((), ordered) as publisher:
        with SubscriberClient() as client:
            for topic, name in ((TOPIC, SUBSCRIPTION), (RESULTS, RESULTS_SUBSCRIPTION)):
                publisher.create_topic(name=topic)
                client.create_subscription(
                    request={"name": name, "topic": topic, "enable_message_ordering": True}
                )
        orders = [
            pubsub.PubsubMessage(data=b"order %d" % number, ordering_key=f"c-{number % 5}")
            for number in range(600)
        ]
        publisher.publish_many(TOPIC, orders).result(30)
    # The first broker was killed here. The second one is killed when half of the work is done.
    results: dict[str, list[int]] = {f"c-{key}": [] for key in range(5)}
    sample = subprocess.Popen(
        [sys.executable, "samples/transform.py", SUBSCRIPTION, RESULTS],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )

    def collect(client: SubscriberClient, enough: int) -> None:
        while (left := enough - sum(map(len, results.values()))) > 0:
            with client.fetch(RESULTS_SUBSCRIPTION, min(left, 100), 20) as messages:
                for message in messages:
                    number = int(message.data.removeprefix(b"ORDER "))
                    if number not in results[message.ordering_key]:
                        results[message.ordering_key].append(number)
                messages.ack()

    try:
        for enough in (300, 600):
            with broker_process(port, tmp_path), SubscriberClient() as client:
                collect(client, enough)
                if enough == 600:
                    # Without a broker, the sample would wait for its last acknowledgements.
                    sample.terminate()
                    sample.communicate(timeout=30)
    finally:
        sample.kill()
        sample.communicate()
    assert results == {f"c-{key}": list(range(key, 600, 5)) for key in range(5)}


NEED_ARGUMENTS = [
    path.name
    for path in sorted((ROOT / "samples").glob("*.py"))
    if "sys.argv" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", NEED_ARGUMENTS)
def test_every_sample_called_without_arguments_prints_its_usage(name: str) -> None:
    """The sample prints its description, which has the command line."""
    ran = run_command([sys.executable, f"samples/{name}"], cwd=ROOT, env=environment())
    assert ran.returncode == 1
    assert f"python samples/{name} " in ran.stderr
    assert "Traceback" not in ran.stderr
