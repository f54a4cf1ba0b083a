"""docs/console.md names the parameters, kinds and answers that exist."""

from __future__ import annotations

import http.client
import json
import re
import shlex
from contextlib import closing
from pathlib import Path

from pullstream_emulator import Emulator
from pullstream_emulator.history import Kind
from pullstream_emulator.rest.events import DEFAULT_EVENTS, PARAMETERS
from pullstream_emulator.rest.subscription_state import (
    DEFAULT_MESSAGES,
    MAX_MESSAGES,
    PARAMETERS_OF_MESSAGES,
    STATES,
)
from tests.emulator.broker import TOPIC
from tests.emulator.rest_client import RestClient

TEXT = (Path(__file__).parents[2] / "docs" / "console.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the only code block in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_console_guide_describes_every_query_parameter_of_the_console_requests() -> None:
    """No other parameter is described."""
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", TEXT, re.MULTILINE))
    described = {
        call: {name for name, calls in rows.items() if call in calls.split(", ")}
        for call in ("events", "messages")
    }
    assert described["events"] | {"show"} == set(PARAMETERS)
    assert described["messages"] == set(PARAMETERS_OF_MESSAGES)
    for kind in Kind:
        assert f"`{kind.value}`" in TEXT
    for state in STATES:
        assert f"`{state}`" in TEXT
    for number in (DEFAULT_EVENTS, MAX_MESSAGES):
        assert f"{number:,}" in TEXT
    assert f"({DEFAULT_MESSAGES}, at most" in TEXT


def test_the_http_requests_of_the_console_guide_get_the_answers_printed_in_the_guide() -> None:
    """The JSON has the fields of an event."""
    with Emulator(rest=True) as emulator:
        RestClient(emulator.endpoint).create()
        emulator.publish(TOPIC, "a", colour="red")
        for command in block("sh").splitlines():
            *_, address = shlex.split(command)
            path = address.removeprefix("localhost:8085")
            with closing(http.client.HTTPConnection(emulator.endpoint, timeout=30)) as connection:
                connection.request("GET", path)
                assert connection.getresponse().status == 200
        (event,) = RestClient(emulator.endpoint).ok("GET", "/v0/events")["events"]
    printed = json.loads(block("json"))
    assert set(event) == set(printed)
    assert set(event["message"]) - {"attributes"} == set(printed["message"])
