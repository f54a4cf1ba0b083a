"""Runs the recipes of the design of feeds (C2), as printed, with curl."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.face import TIMEOUT
from tests.emulator.program import running
from tests.emulator.rest_client import RestClient
from tests.optional_tools import missing

MAKE_THE_FEED = """\
curl -X PUT $TOPICS/v0/topics/notifications \\
  -H 'content-type: application/json' \\
  -d '{ "ttl_ms": 5000, "cap_records": 10000, "discard": "old", "durable": false }'
"""
FAN_OUT = """\
curl -X PUT $TOPICS/v0/topics/notifications:web    -d '{ "ttl_ms": 5000, "cap_records": 10000 }'
curl -X PUT $TOPICS/v0/topics/notifications:mobile -d '{ "ttl_ms": 5000, "cap_records": 10000 }'
curl -X PUT $TOPICS/v0/routers/notifications-to-web \
  -d '{ "source": "notifications", "dest": "notifications:web" }'
curl -X PUT $TOPICS/v0/routers/notifications-to-mobile \
  -d '{ "source": "notifications", "dest": "notifications:mobile" }'
"""
PUBLISH = """\
curl -X POST $TOPICS/v0/topics/notifications \\
  -H 'content-type: application/json' \\
  -d '{ "records": [ { "data": { "type": "comment", "post": "p-123", "actor": "user-1042" },
        "tag": "user-1042:msg-5" } ] }'
"""
SUBSCRIBE = """\
curl -X POST $TOPICS/v0/watch \\
  -H 'content-type: application/json' \\
  -d '{ "topics": { "notifications:web": { "tail": true } } }'
"""
OPEN = "curl -N $TOPICS/v0/watch/$WID"

# Not printed in the seed: a topic with a small capacity.
MAKE_A_SMALL_FEED = "curl -X PUT $TOPICS/v0/topics/notifications:web -d '{ \"cap_records\": 2 }'"

SETTINGS = {
    "ttl_ms": 5000, "cap_records": 10000, "cap_bytes": 0, "discard": "old", "durable": False,
    "durability": "disk", "auto_create": True, "idempotency_window_ms": 120000,
    "dedupe_node": True,
}  # fmt: skip


class Shell:
    """Runs commands in a shell that has $TOPICS set, as a reader of the seed would."""

    def __init__(self, endpoint: str) -> None:
        self._environment = {**os.environ, "TOPICS": f"http://{endpoint}"}

    def run(self, commands: str) -> list[Any]:
        """Run the commands and return the output of each."""
        ran = subprocess.run(
            ["sh", "-ec", commands],
            env=self._environment,
            capture_output=True,
            check=True,
            timeout=TIMEOUT,
        )
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def subscribe(self, command: str = SUBSCRIBE) -> None:
        """Start a watch. `stream` opens it."""
        (begun,) = self.run(command)
        assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", begun["wid"])
        assert begun["stream_url"] == f"/v0/watch/{begun['wid']}"
        self._environment["WID"] = begun["wid"]

    def stream(self) -> Stream:
        return Stream(self._environment)


class Stream:
    """The events that curl prints for a stream."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._curl = subprocess.Popen(
            ["sh", "-c", f"exec {OPEN}"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.next() == ["retry: 2000"]

    def next(self) -> list[str]:
        """Return the lines of the next event."""
        printed = self._curl.stdout
        assert printed is not None
        return list(iter(lambda: printed.readline().rstrip("\n"), ""))

    def next_of(self, event: str) -> Any:
        """Return the content of the next event, and check its name and the form of its lines."""
        while True:
            first, name, data = self.next()
            assert re.fullmatch(r"id: [A-Za-z0-9_-]+", first)
            if name == f"event: {event}":
                return data.removeprefix("data: ")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._curl.kill()
        self._curl.communicate()


@pytest.fixture(scope="module", autouse=True)
def curl() -> None:
    if shutil.which("curl") is None:
        missing("curl", "the recipes need curl")


@pytest.fixture(scope="module")
def endpoint(curl: None) -> Iterator[str]:
    with running() as (_, endpoint):
        yield endpoint


@pytest.fixture
def shell(endpoint: str) -> Shell:
    """Return a shell for an empty broker."""
    shell = Shell(endpoint)
    RestClient(endpoint).raw("POST", "/reset")
    return shell


def test_the_documented_curl_request_creates_the_documented_feed_c2_1(shell: Shell) -> None:
    (made,) = shell.run(MAKE_THE_FEED)
    assert made.pop("performance").keys() == {"server_total_ms"}
    assert made == {"topic": "notifications", "created": True, "config": SETTINGS}


def test_the_documented_curl_requests_create_the_documented_routers_c2_9(shell: Shell) -> None:
    shell.run(MAKE_THE_FEED)
    web, mobile, *routers = shell.run(FAN_OUT)
    assert (web["topic"], mobile["topic"]) == ("notifications:web", "notifications:mobile")
    for router, dest in zip(routers, ("web", "mobile"), strict=True):
        assert router.pop("performance").keys() == {"server_total_ms"}
        assert router == {
            "router": f"notifications-to-{dest}", "created": True, "source": "notifications",
            "dest": f"notifications:{dest}", "preserve_node": True, "preserve_tag": True,
            "filter": None, "allow_cycle": False,
        }  # fmt: skip


def test_the_documented_curl_request_appends_a_record_to_a_feed_c2_6(shell: Shell) -> None:
    shell.run(MAKE_THE_FEED)
    (published,) = shell.run(PUBLISH)
    assert published.pop("performance").keys() == {"server_total_ms"}
    assert published == {
        "topic": "notifications", "first_seq": 1, "last_seq": 1, "seqs": [1], "head_seq": 1,
        "count": 1, "created": False, "deduped": False,
    }  # fmt: skip


def test_a_watch_by_curl_prints_a_record_as_documented_c2_17(shell: Shell) -> None:
    shell.run(MAKE_THE_FEED + FAN_OUT)
    shell.subscribe()
    with shell.stream() as stream:
        shell.run(PUBLISH)
        told = stream.next_of("record")
    time = json.loads(told)["records"][0]["$ts"]
    assert told == (
        '{"topic":"notifications:web","records":[{"$seq":1,"$ts":'
        + str(time)
        + ',"data":{"type":"comment","post":"p-123","actor":"user-1042"}}],'
        '"from_seq":0,"to_seq":1,"head_seq":1}'
    )


def test_a_watch_by_curl_prints_a_gap_as_documented_c2_19(shell: Shell) -> None:
    """The subscriber was disconnected while its topic overflowed."""
    shell.run(MAKE_THE_FEED + FAN_OUT + MAKE_A_SMALL_FEED)
    shell.subscribe()
    shell.run(PUBLISH * 5)
    with shell.stream() as stream:
        assert stream.next_of("tombstone") == (
            '{"topic":"notifications:web","reason":"cap","gap_from":1,"gap_to":3,'
            '"earliest_seq":4,"head_seq":5}'
        )
        assert [record["$seq"] for record in json.loads(stream.next_of("record"))["records"]] == [
            4, 5,
        ]  # fmt: skip


def test_an_idle_watch_by_curl_prints_heartbeats_without_data_c2_22(shell: Shell) -> None:
    """The test uses the shortest allowed heartbeat interval."""
    shell.run(MAKE_THE_FEED + FAN_OUT)
    shell.subscribe(SUBSCRIBE.replace('{ "topics"', '{ "heartbeat_ms": 1000, "topics"'))
    with shell.stream() as stream:
        assert stream.next()[1] == "event: caught-up"
        assert stream.next() == [": hb"]


@pytest.mark.parametrize(("ceiling", "status"), [(150, 429), (0, 200)])
def test_an_environment_variable_sets_the_total_byte_limit_of_all_feeds_of_a_broker_c2_4(
    ceiling: int, status: int
) -> None:
    """0 means no ceiling."""
    with running(TOPICS_MAX_TOTAL_BYTES=str(ceiling)) as (_, endpoint):
        shell = Shell(endpoint)
        shell.run(PUBLISH)
        (again,) = shell.run(PUBLISH.replace("curl", "curl -so /dev/null -w '%{http_code}\n'"))
    assert again == status
