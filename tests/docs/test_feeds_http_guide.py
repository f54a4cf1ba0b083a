"""Tests of docs/feeds-http.md: its commands print the documented output, its tables lack no row."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.engine.resources.publish_limits import MAX_PAYLOAD_BYTES
from pullstream_emulator.logs import feeds, read, selection, watch
from pullstream_emulator.logs.append_limits import (
    MAX_DATA_BYTES,
    MAX_NODE_BYTES,
    MAX_RECORDS,
    MAX_TAG_BYTES,
)
from pullstream_emulator.logs.settings import DEFAULT_CAP_RECORDS
from pullstream_emulator.rest.v0 import reading as v0_reading
from pullstream_emulator.rest.v0 import routers, topics, watches, writing
from pullstream_emulator.rest.v0.api import ENDPOINTS
from pullstream_emulator.rest.v0.json_body import MAX_DEPTH
from pullstream_emulator.rest.v0.short_names import DEFAULT_PROJECT
from pullstream_protocol.clock import ManualClock
from tests.optional_tools import missing

GUIDE = (Path(__file__).parents[2] / "docs" / "feeds-http.md").read_text(encoding="utf-8")

_STEP = re.compile(
    r"^```sh\n(?P<command>curl .*?)^```\n```(?P<kind>json|text)\n(?P<told>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

# The parts that differ in each run.
_VOLATILE = re.compile(
    r"wid_[A-Za-z0-9_-]+|(?<=id: )\S+|(?<=_ms\":)[0-9.]+(?=})|(?<=\$ts\":)\d+|(?<=epoch\":\")\d+"
)


def fixed(text: str) -> str:
    return _VOLATILE.sub("?", text)


def compact(text: str) -> str:
    return fixed(json.dumps(json.loads(text), separators=(",", ":")))


def test_the_commands_of_the_feeds_http_guide_print_their_documented_output() -> None:
    """The commands run with curl one after the other, and the broker's records do not expire."""
    if shutil.which("curl") is None:
        missing("curl", "the guide's commands need curl")
    steps = list(_STEP.finditer(GUIDE))
    assert len(steps) == GUIDE.count("curl -") == 7
    environment = dict(os.environ)
    with Emulator(clock=ManualClock(), rest=True) as emulator:
        environment["TOPICS"] = f"http://{emulator.endpoint}"
        for step in steps:
            if step["kind"] == "text":
                check_stream(step["command"], environment, step["told"])
                continue
            printed = run(step["command"], environment)
            assert compact(printed) == compact(step["told"])
            environment.setdefault("WID", "")
            environment["WID"] = json.loads(printed).get("wid", environment["WID"])


def run(command: str, environment: Mapping[str, str]) -> str:
    ran = subprocess.run(
        ["sh", "-ec", command], env=environment, capture_output=True, check=True, timeout=20
    )
    return ran.stdout.decode()


def check_stream(command: str, environment: Mapping[str, str], told: str) -> None:
    """Compare an endless stream up to the length of the guide's text."""
    curl = subprocess.Popen(
        ["sh", "-c", f"exec {command}"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert curl.stdout is not None
        printed = "".join(curl.stdout.readline() for _ in told.splitlines())
        assert fixed(printed) == fixed(told)
    finally:
        curl.kill()
        curl.communicate()


def test_the_feeds_http_guide_describes_every_http_endpoint_of_feeds() -> None:
    """Each endpoint has its verb and its path."""
    paths = {
        f"{each.verb} {each.path.pattern.replace('([^/]+)', 'NAME')}" for each in ENDPOINTS
    } | {"POST /v0/watch", "GET /v0/watch/WID", "DELETE /v0/watch/WID"}
    assert {path for path in paths if f"`{path}`" not in GUIDE} == set()


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("Topics", topics.Settings.__struct_fields__),
        ("Records", (*writing.AppendBody.__struct_fields__, *writing.DeleteBody.__struct_fields__)),
        ("Reading", v0_reading.DiffBody.__struct_fields__),
        (
            "Watches",
            (
                *v0_reading.Start.__struct_fields__,
                *set(watches.WatchBody.__struct_fields__).difference(
                    v0_reading.DiffBody.__struct_fields__
                ),
            ),
        ),
        ("Routers", routers.RouterBody.__struct_fields__),
    ],
)
def test_the_feeds_http_guide_describes_every_field_of_requests_and_answers(
    heading: str, fields: tuple[str, ...]
) -> None:
    """Each field is in the section of its object."""
    section = GUIDE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"[a-z_]+", section))
    assert set(fields) - named == set()


def test_the_limits_in_the_feeds_http_guide_equal_the_limits_of_the_broker() -> None:
    claims: Mapping[str, Any] = {
        "{:,} bytes": MAX_PAYLOAD_BYTES,
        "keeps {:,} records": DEFAULT_CAP_RECORDS,
        "Up to {:,} records": MAX_RECORDS,
        "At most {} MiB": MAX_DATA_BYTES // 2**20,
        "nested {} deep": MAX_DEPTH,
        "deletes go by; {} bytes": MAX_TAG_BYTES,
        "written it; {} bytes": MAX_NODE_BYTES,
        "| {},": selection.DEFAULT_MESSAGES,
        ", {} |": selection.DEFAULT_BYTES,
        "at most {:,} and 8 MiB": selection.MAX_MESSAGES,
        "at most {:,} |": v0_reading.MAX_WAIT_MS,
        "up to {} `topics`": feeds.MAX_WATCHED,
        "`heartbeat_ms` is {:,},": round(feeds.DEFAULT_HEARTBEAT * 1000),
        "from {:,} to": round(feeds.MIN_HEARTBEAT * 1000),
        "to {:,}.": round(feeds.MAX_HEARTBEAT * 1000),
        "ends {:.0f} s after": watch.SESSION_TTL,
        "nothing for {:.0f} s": watch.GIVEN_UP_AFTER,
        "it is `{}`": DEFAULT_PROJECT,
    }
    missed = [claim for claim, number in claims.items() if claim.format(number) not in GUIDE]
    assert missed == []
    assert (selection.MAX_BYTES, read.MAX_WAIT) == (8 * 2**20, v0_reading.MAX_WAIT_MS / 1000)
