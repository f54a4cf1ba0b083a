"""Every command on a broker with TLS, client certificates and tokens (docs/security.md)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from pullstream import SchemaServiceClient, SubscriberClient, TopicAdminClient
from pullstream.cli.program import program
from pullstream_protocol import names
from tests.emulator.certificates import new_identity
from tests.emulator.program import running
from tests.subscriber.command_line import pullstream, usage_error
from tests.subscriber.worker.program import python_path

TOKEN = "b81e55c09d23"
PROJECT = "test"
TIMEOUT = 60

# The arguments of each command. T, S, F and R are an existing topic, a subscription with a message,
# a feed and a router; N is a name that does not exist. A server on a busy machine answers within a
# second.
ARGUMENTS = {
    "clock advance": ["0"],
    "clock show": [],
    "faults add": ["delay:GetSnapshot:0.1"],
    "faults clear": [],
    "faults list": [],
    "feeds append": ["F", "one", "two"],
    "feeds delete": ["F", "--before-seq", "1"],
    "feeds get": ["F"],
    "feeds list": [],
    "feeds put": ["N"],
    "feeds read": ["F"],
    "ack": ["S", "A"],
    "emulator backup": ["B"],
    "fetch": ["S"],
    "follow": ["F", "--until-caught-up"],
    "listen": ["T", "--idle-exit", "1"],
    "nack": ["S", "A"],
    "peek": ["S"],
    "publish": ["T", "one"],
    "pull": ["S"],
    "purge": ["S", "--yes"],
    "receive": [
        "--subscription",
        "S",
        "--spool",
        "O",
        "--acknowledge",
        "stored",
        "--available-now",
    ],
    "redrive": ["S", "--to", "T", "--dry-run", "--timeout", "1"],
    "routers delete": ["R"],
    "routers get": ["R"],
    "routers list": [],
    "routers put": ["N", "--source", "F", "--dest", "N"],
    "schemas commit": ["C", "--type", "avro", "--file", "D"],
    "schemas create": ["N", "--type", "avro", "--file", "D"],
    "schemas delete": ["C"],
    "schemas describe": ["C"],
    "schemas list": [],
    "schemas revisions": ["C"],
    "schemas rollback": ["C", "--revision", "V"],
    "schemas validate": ["--type", "avro", "--file", "D"],
    "schemas validate-message": ["C", "--file", "M"],
    "seek": ["S", "--time", "1h"],
    "snapshots create": ["N", "--subscription", "S"],
    "snapshots delete": ["P"],
    "snapshots describe": ["P"],
    "snapshots list": [],
    "subscribe": ["S", "--max-messages", "1"],
    "subscriptions create": ["N", "--topic", "T"],
    "subscriptions delete": ["S"],
    "subscriptions describe": ["S"],
    "subscriptions detach": ["S"],
    "subscriptions list": [],
    "subscriptions state": ["S"],
    "subscriptions update": ["S", "--ack-deadline", "20"],
    "top": ["--once", "--interval", "0.1"],
    "topics create": ["N"],
    "topics delete": ["T"],
    "topics describe": ["T"],
    "topics list": [],
    "topics update": ["T", "--label", "a=b"],
    "watch": ["F", "--idle-exit", "1"],
}
DEFINITION = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
)
# `emulator` is the broker, and `ingest status` asks no server. `worker` is tested below, and
# `ingest` in tests/subscriber/spark/datasource/test_broker_access.py.
OTHERS = {"worker", "ingest", "ingest status", "compact", "clean", "spool skip", "emulator"}


def commands(group: click.Group, *path: str) -> Iterator[str]:
    """Yield the paths of all commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
            if command.invoke_without_command:
                yield " ".join((*path, name))
        else:
            yield " ".join((*path, name))


class Secured:
    """A running broker, and the options to reach it."""

    def __init__(self, address: str, folder: Path) -> None:
        port = address.rpartition(":")[2]
        self.endpoint = f"127.0.0.1:{port}"
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        self.token_file = folder / "token"
        self.token_file.write_text(f"{TOKEN}\n", encoding="ascii")
        self._folder = folder
        self._numbers = itertools.count()

    @property
    def client(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint,
            "token": TOKEN,
            "ca": self.certificate,
            "cert": self.certificate,
            "key": self.key,
        }

    @property
    def address(self) -> list[str]:
        return ["--endpoint", self.endpoint, "--project", PROJECT]

    @property
    def trust(self) -> list[str]:
        certificate = str(self.certificate)
        return ["--ca", certificate, "--cert", certificate, "--key", str(self.key)]

    def arguments(self, texts: Sequence[str]) -> list[str]:
        """Create the resources that a command needs, and fill in their names."""
        number = next(self._numbers)
        made = {name: f"{name}-{number}-name" for name in "TSFRN"}
        made["B"] = str(self._folder / f"backup-{number}")
        made["O"] = str(self._folder / f"spool-{number}")
        topic, feed = (names.topic_path(PROJECT, made[name]) for name in "TF")
        subscription = names.subscription_path(PROJECT, made["S"])
        for key, text in (("D", DEFINITION), ("M", '{"id": 1}')):
            path = self._folder / f"{key}-{number}"
            path.write_text(text, encoding="utf-8")
            made[key] = str(path)
        made["C"] = f"C-{number}-name"
        with SchemaServiceClient(**self.client) as schemas:
            made["V"] = schemas.create_schema(
                parent=f"projects/{PROJECT}",
                schema_id=made["C"],
                schema={"type": "AVRO", "definition": DEFINITION},
            ).revision_id
        with TopicAdminClient(**self.client) as topics, SubscriberClient(**self.client) as client:
            topics.create_topic(name=topic)
            client.create_subscription(name=subscription, topic=topic)
            topics.publish(topic, [{"data": b"one"}])
            client.feeds.put(feed)
            router = f"projects/{PROJECT}/routers/{made['R']}"
            client.routers.put({"name": router, "source": feed, "dest": topic})
            made["P"] = f"P-{number}-name"
            client.create_snapshot(
                name=names.snapshot_path(PROJECT, made["P"]), subscription=subscription
            )
            if "A" in texts:
                (pulled,) = client.pull(subscription=subscription, max_messages=1).received_messages
                made["A"] = pulled.ack_id
        return [made.get(text, text) for text in texts]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("broker")
    certificate, key = new_identity("broker").write(folder)
    options = [f"--tls-cert={certificate}", f"--tls-key={key}", f"--tls-client-ca={certificate}"]
    options.append(f"--data-dir={folder / 'data'}")
    with running(*options, PULLSTREAM_AUTH_TOKEN=TOKEN) as (_, address):
        yield Secured(address, folder)


def test_every_command_has_a_test_of_its_token_and_ca_options() -> None:
    """A new one needs a line in ARGUMENTS."""
    assert set(commands(program)) == ARGUMENTS.keys() | OTHERS


@pytest.mark.parametrize("command", ARGUMENTS)
def test_the_token_and_ca_options_may_be_given_before_or_after_the_command_name(
    command: str, broker: Secured
) -> None:
    """The token is text before the command, and in a file after it."""
    before = [*broker.address, *broker.trust, "--token", TOKEN]
    result = pullstream(*before, *command.split(), *broker.arguments(ARGUMENTS[command]))
    assert result.code == 0, result.stderr
    after = [*broker.address, *broker.trust, "--token-file", str(broker.token_file)]
    result = pullstream(*command.split(), *broker.arguments(ARGUMENTS[command]), *after)
    assert result.code == 0, result.stderr


@pytest.mark.parametrize("command", ARGUMENTS)
def test_commands_take_the_token_and_the_ca_file_from_environment_variables(
    command: str, broker: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PULLSTREAM_CA asks for TLS without a scheme. No client reads the broker's own variable."""
    arguments = [*command.split(), *broker.arguments(ARGUMENTS[command]), *broker.trust[2:]]
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", broker.endpoint)
    monkeypatch.setenv("PUBSUB_PROJECT_ID", PROJECT)
    monkeypatch.setenv("PULLSTREAM_CA", str(broker.certificate))
    monkeypatch.setenv("PULLSTREAM_AUTH_TOKEN", TOKEN)
    refused = pullstream(*arguments)
    assert "missing required authentication" in refused.stderr
    # `receive` ends with 3 if the server refuses.
    assert refused.code == (3 if command == "receive" else 1)
    monkeypatch.setenv("PULLSTREAM_TOKEN", TOKEN)
    result = pullstream(*arguments)
    assert result.code == 0, result.stderr


APP = """
import os, signal
from pathlib import Path

def handle(message):
    shown = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (os.getpid(), os.getppid())]
    Path("shown").write_bytes(b"\\n".join(shown))
    message.ack()
    os.kill(os.getppid(), signal.SIGTERM)
"""


def test_the_arguments_of_worker_processes_do_not_contain_the_token(
    broker: Secured, tmp_path: Path
) -> None:
    """The parent sends it over a socket, not as an argument."""
    (subscription,) = broker.arguments("S")
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pullstream", "worker", "app:handle", "--processes", "1"),
        *("--subscription", subscription, *broker.address, *broker.trust),
        *("--token-file", str(broker.token_file)),
    ]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    shown = (tmp_path / "shown").read_bytes()
    assert b"pullstream.worker" in shown
    assert TOKEN.encode() not in shown


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--token", "--token-file", "--ca", "--cert", "--key"])
def test_an_empty_value_of_the_token_or_ca_option_is_a_usage_error(option: str) -> None:
    """The variable of a script may be unset."""
    assert f"'{option}': it must not be empty." in usage_error("topics", "list", option, "")


@pytest.mark.parametrize("command", [["topics", "list"], ["clock", "show"]])
@pytest.mark.parametrize("before", [True, False])
def test_commands_refuse_to_send_a_token_in_plain_text_to_another_machine(
    command: list[str], before: bool
) -> None:
    """The error has the remedy but not the token."""
    options = ["--endpoint", "http://broker.example:8085", "--token", TOKEN, "--project", "p"]
    error = usage_error(*(options + command if before else command + options))
    assert "token would be sent in plain text to broker.example:8085" in error
    assert "--ca" in error
    assert TOKEN not in error


def test_the_command_options_token_and_token_file_exclude_each_other(tmp_path: Path) -> None:
    """The intended token would be unclear."""
    error = usage_error("--token", "one", "topics", "list", "--token-file", "two")
    assert "--token and --token-file exclude each other" in error
    empty = tmp_path / "token"
    empty.touch()
    error = usage_error("topics", "list", "--token-file", str(empty))
    assert f"--token-file {str(empty)!r} contains no token" in error
