"""`pullstream listen`: prints messages that are published from now on."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pullstream import ChannelPublisher
from pullstream.cli.listen import _Printer
from pullstream.cli.output import Output
from pullstream.cli.progress import Progress
from pullstream_emulator import Emulator
from pullstream_protocol import names
from pullstream_protocol.errors import NotFound
from tests.contract.channel_peers import statistics
from tests.contract.channel_servers import served
from tests.subscriber.command_line import Result, failure, pullstream
from tests.subscriber.streaming.fakes import eventually
from tests.threads import on_threads

TOPIC = names.topic_path("test-project", "orders")


@pytest.fixture(autouse=True)
def orders(broker: Emulator) -> None:
    pullstream("topics", "create", "orders")


def run_beside(emulator: Emulator, interests: int, act: Callable[[], object], *args: str) -> Result:
    """Run `pullstream listen ARGS`, and call `act` as soon as it listens."""

    def wait_and_act() -> None:
        eventually(lambda: statistics(emulator).interests == interests)
        act()

    with on_threads(wait_and_act):
        return pullstream("listen", *args)


def test_the_listen_command_prints_new_messages_of_a_topic(broker: Emulator) -> None:
    """All new messages of the topic are printed, but no earlier ones."""
    broker.publish(TOPIC, "before")

    def publish() -> None:
        for data in ("one", "two", "three"):
            broker.publish(TOPIC, data)

    result = run_beside(broker, 1, publish, "orders", "--max-messages", "2")
    assert (result.code, result.stdout, result.stderr) == (0, b"one\ntwo\n", "listening\n")


def test_the_listen_command_prints_only_messages_of_given_ordering_keys(broker: Emulator) -> None:
    """Any number of keys may be given, and `--json` prints an object for each message."""

    def publish() -> None:
        for key in "abc":
            broker.publish(TOPIC, f"of {key}", ordering_key=key)

    args = ("orders", "--ordering-key", "a", "--ordering-key", "c", "--max-messages", "2", "--json")
    result = run_beside(broker, 2, publish, *args)
    assert [(each["orderingKey"], each["data"]) for each in result.objects] == [
        ("a", "of a"),
        ("c", "of c"),
    ]


def test_the_listen_command_treats_a_repeated_key_as_one_key() -> None:
    """The failure of the only key ends the command."""
    result = pullstream("listen", "nothing", "--ordering-key", "a", "--ordering-key", "a")
    assert result.code == 1


def test_the_listen_command_ends_after_the_idle_time_without_messages() -> None:
    """The exit code is 0."""
    result = pullstream("listen", "orders", "--idle-exit", "0.05")
    assert (result.code, result.stdout) == (0, b"")


def test_the_listen_command_fails_for_a_missing_topic() -> None:
    """The error is one line."""
    error = failure("listen", "nothing")
    name = "projects/test-project/topics/nothing"
    assert error == (
        "Error: NOT_FOUND: Resource not found (resource=nothing). "
        f"The topic {name} does not exist.\n"
    )


def test_the_listen_command_ends_when_its_topic_is_deleted(broker: Emulator) -> None:
    """The error has the reason."""

    def delete() -> None:
        broker.inspect(lambda engine: engine.delete_topic(TOPIC))

    result = run_beside(broker, 1, delete, "orders")
    assert result.code == 1
    assert result.stderr.endswith("Error: The topic was deleted.\n")


def test_the_listen_command_can_receive_messages_from_a_publisher_without_a_broker() -> None:
    """The publisher's channels are no topics."""
    publisher = ChannelPublisher()
    with served(publisher) as endpoint:

        def publish() -> None:
            eventually(lambda: publisher.statistics().interests == 1)
            publisher.publish("jobs", "7", "done")

        with on_threads(publish):
            args = ("jobs", "--direct", "--ordering-key", "7", "--endpoint", endpoint)
            result = pullstream("listen", *args, "--max-messages", "1")
    assert (result.code, result.stdout) == (0, b"done\n")


@pytest.mark.parametrize("as_json", [True, False])
def test_the_listen_command_reports_the_end_of_one_of_several_subscriptions(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """The others go on. With --json the report is an object."""
    printer = _Printer(Output(as_json=as_json), Progress(), 2)
    printer.failed(NotFound("no such topic"))
    assert printer.failure is None
    out, err = capsys.readouterr()
    if as_json:
        assert (json.loads(out)["ended"], err) == (True, "")
        assert "no such topic" in json.loads(out)["error"]
    else:
        assert out == ""
        assert "a subscription has ended: " in err
