"""The program as a whole: sources of commands, exit codes, and global options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pullstream import cli
from pullstream.cli.program import SECTIONS
from pullstream_emulator import Emulator
from pullstream_protocol.errors import PermissionDenied
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.command_line import failure, pullstream, usage_error
from tests.subscriber.scripted_server import Call, ScriptedServer

OWN = ["publish", "pull", "subscribe", "subscriptions", "topics", "worker"]

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with one module and its commands."""

    def install(module: str, text: str, **commands: str) -> None:
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        entries = "".join(f"{name} = {module}:{target}\n" for name, target in commands.items())
        (info / "entry_points.txt").write_text(f"[pullstream.commands]\n{entries}")
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def test_the_help_of_the_pullstream_program_lists_its_commands() -> None:
    """The SDK's own commands need no installation."""
    result = pullstream("--help")
    assert result.code == 0
    listed = [line.split()[0] for line in result.lines if line.startswith("  ") and line.strip()]
    assert set(OWN) <= set(listed)


def test_the_pullstream_program_called_without_a_command_prints_its_help() -> None:
    """The help is on stdout or, since click 8.2, on stderr."""
    result = pullstream()
    assert "Messages:" in result.stdout.decode() + result.stderr


def test_the_usage_error_for_an_unknown_command_contains_the_name_of_the_command() -> None:
    """The error names it."""
    assert "No such command 'tropics'. Did you mean 'topics'?" in usage_error("tropics")


def test_the_error_for_a_mistyped_command_or_option_suggests_the_correct_name() -> None:
    """Groups and options have suggestions."""
    assert "Did you mean 'list'?" in " ".join(pullstream("topics", "lst").stderr.split())
    assert "--project" in pullstream("topics", "list", "--projct", "p").stderr


def test_the_help_prints_the_description_of_every_command_in_full() -> None:
    """Each command has a whole sentence, on narrow terminals over several lines."""
    text = pullstream("--help").stdout.decode()
    assert "..." not in text.partition("Messages:")[2]
    assert [line for line in text.splitlines() if line.endswith(":") and line[0] != " "] == [
        "Options:",
        *(f"{title}:" for title in SECTIONS),
        "Connection:",
    ]


@pytest.mark.parametrize("command", ["", "fetch", "topics", "topics create", "feeds append"])
def test_connection_options_are_the_last_section_of_a_commands_help(command: str) -> None:
    """The options of the command come first."""
    text = pullstream(*command.split(), "--help").stdout.decode()
    options, connection = text.split("\nConnection:\n")
    listed = [line.split()[0] for line in connection.splitlines() if line[2:3] == "-"]
    assert listed == [
        *("--project", "--endpoint", "--token", "--token-file", "--ca", "--cert", "--key")
    ]
    assert not any(f"  {name} " in options for name in listed)
    assert "--json " in options


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("tail", "'subscribe' or 'watch' or 'follow'"),
        ("rm", "'topics delete' or 'subscriptions delete'"),
        ("subs", "'subscriptions' or 'subscribe'"),
        ("sub", "'subscribe' or 'subscriptions'"),
        ("pub", "'publish'"),
        ("ls", "'topics list' or 'subscriptions list'"),
        ("dlq", "'redrive'"),
        ("topics rm", "'delete'"),
        ("subscriptions ls", "'list'"),
        ("feeds add", "'put'"),
        ("subscriptions show", "'describe'"),
        ("topics get", "'describe'"),
    ],
)
def test_command_names_of_other_tools_get_a_suggestion_of_the_pullstream_command(
    words: str, suggestion: str
) -> None:
    """A group suggests only the commands that it has."""
    error = usage_error(*words.split())
    command = words.split()[-1]
    assert f"No such command {command!r}. Did you mean {suggestion}?" in error


def test_the_version_option_prints_the_version_of_the_pullstream_package() -> None:
    """In a source tree, it says that there is no version."""
    result = pullstream("--version")
    assert result.code == 0
    assert result.lines[0].startswith("pullstream ")


def test_other_packages_can_add_commands_to_the_pullstream_program_by_entry_points(
    install: Install,
) -> None:
    """Commands are found by entry points, as the emulator's command is."""
    text = "import click\n@click.command('hello')\ndef command():\n    'Greets.'\n    print('hi')\n"
    install("greeter", text, hello="command")
    assert pullstream("hello").stdout == b"hi\n"
    assert any(line.split() == ["hello", "Greets."] for line in pullstream("--help").lines)


def test_a_command_that_cannot_be_imported_prints_the_reason_and_other_commands_work(
    install: Install,
) -> None:
    """The package of a command may lack one of its dependencies."""
    install("broken", "import a_module_that_is_missing\n", broken="command")
    error = failure("broken", "--some", "thing")
    assert "broken cannot be loaded: No module named 'a_module_that_is_missing'" in error
    listing = pullstream("--help")
    assert listing.code == 0
    assert "topics" in listing.stdout.decode()


def test_ctrl_c_ends_the_pullstream_program_with_exit_code_130(install: Install) -> None:
    """Shells expect this code of an interrupted program."""
    text = "import click\n@click.command('wait')\ndef command():\n    raise KeyboardInterrupt\n"
    install("waiter", text, wait="command")
    assert pullstream("wait").code == 130


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_the_pullstream_program_without_its_cli_extra_prints_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is one line without a traceback."""
    monkeypatch.setitem(sys.modules, missing, None)
    assert cli.main() == 1
    line = f"pullstream's command line needs {missing}: pip install 'pullstream[cli]'\n"
    assert capsys.readouterr().err == line


def test_a_failed_command_prints_one_error_line_and_exits_with_code_1(broker: Emulator) -> None:
    """The line has the status and the server's text."""
    result = pullstream("topics", "describe", "orders")
    assert result.code == 1
    assert result.stdout == b""
    assert result.stderr.startswith("Error: NOT_FOUND: ")
    assert result.stderr.count("\n") == 1


def test_a_command_for_an_unreachable_server_prints_one_error_line_and_exits_with_1() -> None:
    """The error comes at once, because a person waits for it."""
    error = failure("topics", "list", "--endpoint", "localhost:1", "--project", "p")
    assert error.startswith("Error: UNAVAILABLE: ")
    assert error.count("\n") == 1


def test_an_invalid_value_of_the_endpoint_option_is_a_usage_error() -> None:
    """The error has the required form."""
    error = usage_error("topics", "list", "--endpoint", "here there", "--project", "p")
    assert "endpoint must have the form host:port, got 'here there'" in error


def test_a_short_resource_name_on_the_command_line_needs_a_project(
    broker: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full name does not."""
    monkeypatch.delenv("PUBSUB_PROJECT_ID")
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    error = usage_error("topics", "create", "orders")
    assert "Pass --project, set PUBSUB_PROJECT_ID, or give the full name" in error
    assert pullstream("topics", "create", "projects/p/topics/orders").code == 0


@pytest.mark.parametrize(
    ("args", "environment", "project"),
    [
        ([], {"GOOGLE_CLOUD_PROJECT": "google"}, "google"),
        ([], {"GOOGLE_CLOUD_PROJECT": "google", "PUBSUB_PROJECT_ID": "mine"}, "mine"),
        (["--project", "said"], {"PUBSUB_PROJECT_ID": "mine"}, "said"),
        (["--project", "projects/said"], {}, "said"),
    ],
)
def test_the_project_of_a_command_comes_from_its_option_or_an_environment_variable(
    args: list[str],
    environment: dict[str, str],
    project: str,
    broker: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order is: option, PUBSUB_PROJECT_ID, GOOGLE_CLOUD_PROJECT."""
    monkeypatch.delenv("PUBSUB_PROJECT_ID")
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    created = pullstream("topics", "create", "orders", *args)
    assert created.lines == [f"projects/{project}/topics/orders created"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_options_project_and_json_are_accepted_anywhere_on_the_command_line(
    place: int, broker: Emulator
) -> None:
    """Options may be before the command, between its parts, and after it."""
    args = ["topics", "create", "orders"]
    args[place:place] = ["--project", "said", "--json"]
    assert pullstream(*args).objects == [{"name": "projects/said/topics/orders", "created": True}]


def test_an_option_after_the_command_name_overrides_the_same_option_before_the_name(
    broker: Emulator,
) -> None:
    """The option closer to the command's end wins."""
    result = pullstream("--project", "far", "topics", "create", "orders", "--project", "near")
    assert result.lines == ["projects/near/topics/orders created"]


@pytest.mark.usefixtures("emulator")
def test_the_error_of_a_command_contains_the_full_name_of_a_missing_resource() -> None:
    """The server names only its id, which a topic and a subscription may share."""
    error = failure("fetch", "nope", "--project", "p", "--timeout", "1")
    assert error.endswith(
        "(resource=nope). The subscription projects/p/subscriptions/nope does not exist.\n"
    )
    full = "projects/p/topics/none"
    shown = pullstream("publish", full, "a", "--project", "p")
    assert shown.stderr.endswith(f"(resource=none). The topic {full} does not exist.\n")


def test_commands_print_control_characters_of_server_texts_as_escapes() -> None:
    """Such texts occur in errors, and in lists that are read by programs."""
    wicked = "a\x1b[2J\nprojects/p/topics/forged"

    def answer(call: Call) -> pubsub.ListTopicsResponse:
        if call.method == "ListTopics":
            return pubsub.ListTopicsResponse(topics=[pubsub.Topic(name=wicked)])
        raise PermissionDenied(wicked)

    with ScriptedServer(answer) as server:
        options = ["--endpoint", server.endpoint, "--project", "p"]
        listed = pullstream("topics", "list", *options)
        refused = pullstream("topics", "create", "orders", *options)
    assert listed.stdout.splitlines() == [rb"a\x1b[2J\nprojects/p/topics/forged" + b"\t\t"]
    assert refused.code == 1
    assert refused.stderr.splitlines() == [
        r"Error: PERMISSION_DENIED: a\x1b[2J projects/p/topics/forged"
    ]


def test_the_json_of_a_failed_command_ends_with_an_object_that_has_the_error(
    broker: Emulator,
) -> None:
    """Results that came before stay, and stderr has the error for people."""
    topic = "projects/p/topics/orders"
    pullstream("topics", "create", topic)
    result = pullstream("topics", "delete", topic, "projects/p/topics/nope", "--json")
    assert result.code == 1
    first, last = result.objects
    assert first == {"name": topic, "deleted": True}
    assert last.pop("time").endswith("Z")
    assert last == {"type": "error", "error": last["error"], "exitCode": 1}
    assert last["error"].startswith("NOT_FOUND: ")
    assert last["error"] in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("topics describe projects/p/topics/nope", 1, "NOT_FOUND"),
        ("topics describe", 2, "Missing argument"),
        ("ack projects/p/subscriptions/nope x", 1, "NOT_FOUND"),
        ("ingest --to /tmp/x", 2, "Missing option '--subscription'"),
        ("ingest --subscription x --to /tmp/x --metrics-port x", 2, "'x' is not a port"),
    ],
)
def test_each_command_reports_its_failure_as_json_with_the_exit_code(
    broker: Emulator, words: str, code: int, text: str
) -> None:
    """Programs that read the output need not read stderr."""
    result = pullstream("--json", *words.split())
    (told,) = result.objects
    assert (result.code, told["exitCode"], told["type"]) == (code, code, "error")
    assert text in told["error"]
    assert pullstream(*words.split()).stdout == b""


def test_a_command_whose_reader_has_gone_away_ends_without_a_second_error(
    broker: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object with the error cannot be written either."""

    def write(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("pullstream.cli.output.Output._json", write)
    result = pullstream("--json", "topics", "describe", "projects/p/topics/nope")
    assert result.code == 1
    assert "Broken pipe" not in result.stderr
