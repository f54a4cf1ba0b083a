"""Runs the examples of docs/rest.md."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from pullstream_emulator import Emulator
from tests.emulator.rest_client import RestClient

GUIDE = (Path(__file__).parents[3] / "docs" / "rest.md").read_text(encoding="utf-8")


def test_the_curl_requests_of_the_rest_guide_are_answered() -> None:
    """The requests run in order. The last one uses the message of the previous one."""
    with Emulator(rest=True) as emulator:
        rest = RestClient(emulator.endpoint)
        commands = re.findall(r"^curl (.*)$", GUIDE, re.MULTILINE)
        replies = [ask(rest, shlex.split(command)) for command in commands]
    assert len(replies) == 4
    assert [m["message"]["data"] for m in replies[-1]["receivedMessages"]] == ["aGVsbG8="]


def ask(rest: RestClient, arguments: list[str]) -> Any:
    """Do the same as `curl -X VERB ADDRESS [-d BODY]`."""
    option, verb, address, *body = arguments
    assert option == "-X"
    content = json.loads(body[1]) if body else None
    return rest.ok(verb, address.removeprefix("localhost:8085"), content)


def test_the_example_program_of_the_rest_guide_runs() -> None:
    """A new broker has no topic."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    assert json.loads(names["topics"]) == {}
