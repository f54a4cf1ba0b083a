"""@google-cloud/pubsub for Node against the broker: node/*.test.js, each with an empty one.

Without node or npm they are skipped with one line. With `node` in the environment's
PULLSTREAM_REQUIRE (as in CI) they fail instead.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pullstream import BatchSettings, PublisherClient, PublisherOptions, SubscriberClient
from pullstream_emulator import Emulator
from tests.completed import run_command
from tests.optional_tools import missing

FOLDER = Path(__file__).parent / "node"
LOCK = FOLDER / "package-lock.json"
# The installed version: a copy of the lock file in the same folder as the packages.
INSTALLED = FOLDER / "node_modules" / "installed.json"
SUITES = sorted(path.name.removesuffix(".test.js") for path in FOLDER.glob("*.test.js"))

# The time limit of one suite, and of the installation, in seconds.
SUITE_TIMEOUT = 60.0
INSTALL_TIMEOUT = 100.0

# All in one process of the suite, because two installations into one folder at the same time damage
# it.
pytestmark = pytest.mark.xdist_group("node")


@pytest.fixture(scope="module")
def node() -> str:
    """Return the node to run, with the client installed in the version of the lock file."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing("node", "needs node and npm")
    if not INSTALLED.exists() or INSTALLED.read_text() != LOCK.read_text():
        install(str(npm))
        INSTALLED.write_text(LOCK.read_text())
    return str(node)


def install(npm: str) -> None:
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        subprocess.run(
            command, cwd=FOLDER, check=True, capture_output=True, timeout=INSTALL_TIMEOUT
        )
    except subprocess.SubprocessError as error:
        missing("node", f"@google-cloud/pubsub cannot be installed: {error}")


@pytest.mark.parametrize("suite", SUITES)
def test_the_test_cases_of_the_google_node_client_pass_against_pullstreams_broker(
    suite: str, node: str
) -> None:
    """The tests of one subject pass, over gRPC or HTTP on one port."""
    with Emulator(rest=True) as emulator:
        done = run(node, suite, emulator.endpoint)
    if done.returncode != 0:
        pytest.fail(f"{suite}.test.js\n{done.stdout}", pytrace=False)


def environment(endpoint: str) -> dict[str, str]:
    return {
        **os.environ,
        "PUBSUB_EMULATOR_HOST": endpoint,
        # Otherwise the client would look for a cloud machine's credentials and wait for them.
        "METADATA_SERVER_DETECTION": "none",
    }


def run(node: str, suite: str, endpoint: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node, "--test-reporter=spec", f"{suite}.test.js"],
        cwd=FOLDER,
        env=environment(endpoint),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SUITE_TIMEOUT,
    )


def test_the_google_node_client_receives_messages_of_pullstreams_publisher_in_key_order(
    node: str,
) -> None:
    """All messages arrive with all their parts, and each key in order."""
    topic = "projects/node-project/topics/orders"
    with (
        Emulator() as emulator,
        PublisherClient(
            BatchSettings(max_messages=7),
            PublisherOptions(enable_message_ordering=True),
            endpoint=emulator.endpoint,
        ) as publisher,
        SubscriberClient(endpoint=emulator.endpoint) as subscriber,
    ):
        publisher.create_topic(name=topic)
        subscriber.create_subscription(
            request={
                "name": "projects/node-project/subscriptions/billing",
                "topic": topic,
                "enable_message_ordering": True,
            }
        )
        futures = [
            publisher.publish(topic, b"%d" % number, f"c-{number % 5}", number=str(number))
            for number in range(200)
        ]
        done = run_command(
            [node, "receive.js", "node-project", "billing", "200"],
            cwd=FOLDER,
            env=environment(emulator.endpoint),
        )
        ids = [future.result(0) for future in futures]
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    by_key: dict[str, list[int]] = {}
    for message in messages:
        by_key.setdefault(message["orderingKey"], []).append(int(message["data"]))
        assert message["attributes"] == {"number": message["data"]}
        assert message["id"] == ids[int(message["data"])]
    assert by_key == {f"c-{key}": list(range(key, 200, 5)) for key in range(5)}
