"""Shell completion knows the names of resources."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from pullstream.cli.program import program
from pullstream_emulator import Emulator

CONFIG = {
    "project": "shop",
    "topics": [{"name": "orders"}, {"name": "offers"}, {"name": "clicks"}],
    "subscriptions": [{"name": "billing", "topic": "orders"}],
    "schemas": [{"name": "order", "type": "AVRO", "definition": '"string"'}],
}


def completions(*words: str, incomplete: str) -> list[str]:
    """Return the words that the shell offers."""
    shell = ShellComplete(program, {}, "pullstream", "_PULLSTREAM_COMPLETE")
    return [item.value for item in shell.get_completions(list(words), incomplete)]


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "shop")
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)


def test_shell_completion_offers_names_of_resources_on_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ids of the project, or full names; of the kind that the command takes."""
    with Emulator(config=CONFIG) as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        assert completions("publish", incomplete="o") == ["offers", "orders"]
        assert completions("fetch", incomplete="") == ["billing"]
        assert completions("topics", "delete", "clicks", incomplete="of") == ["offers"]
        assert completions("schemas", "describe", incomplete="") == ["order"]
        full = "projects/shop/subscriptions/billing"
        assert completions("pull", incomplete="projects/shop/s") == [full]
        assert completions("pull", incomplete="projects/sh") == []
        assert completions("pull", incomplete="x") == []


def test_shell_completion_uses_the_endpoint_and_project_options_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command line names the server and the project."""
    with Emulator(config=CONFIG) as emulator:
        monkeypatch.setenv("PUBSUB_PROJECT_ID", "other")
        before = ["--endpoint", emulator.endpoint, "--project", "shop", "fetch"]
        assert completions(*before, incomplete="b") == ["billing"]
        after = ["fetch", "--endpoint", emulator.endpoint, "--project", "shop"]
        assert completions(*after, incomplete="b") == ["billing"]


def test_shell_completion_offers_no_resource_names_if_the_server_is_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error would disturb the command line."""
    monkeypatch.setattr("pullstream.cli.completion.TIMEOUT", 0.2)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    assert completions("fetch", incomplete="") == []
    monkeypatch.delenv("PUBSUB_PROJECT_ID")
    assert completions("fetch", incomplete="") == []


def test_shell_completion_offers_the_commands_and_options_of_the_pullstream_program() -> None:
    """The library click completes them."""
    assert completions(incomplete="sub") == ["subscribe", "subscriptions"]
    assert "--max-messages" in completions("fetch", incomplete="--max")
