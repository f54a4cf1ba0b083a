"""@google-cloud/pubsub for Node against the broker: node/*.test.js, each against an empty one.

Where node or npm is missing they are skipped, in one line. With `node` in the environment's
PULLSTREAM_REQUIRE (as in CI) they fail instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from emulator import Emulator
from tests.optional_tools import missing

FOLDER = Path(__file__).parent / "node"
LOCK = FOLDER / "package-lock.json"
# What was installed: a copy of the lock file, beside what it describes.
INSTALLED = FOLDER / "node_modules" / "installed.json"
SUITES = sorted(path.name.removesuffix(".test.js") for path in FOLDER.glob("*.test.js"))

# Of one suite, and of the installation, in seconds.
SUITE_TIMEOUT = 60.0
INSTALL_TIMEOUT = 100.0

# All in one of the suite's processes: two that install into the one folder at the same time spoil
# it for each other.
pytestmark = pytest.mark.xdist_group("node")


@pytest.fixture(scope="module")
def node() -> str:
    """The node to run, with the client installed in the version of the lock file."""
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
def test_google_node_client(suite: str, node: str) -> None:
    """The tests of one subject pass, over gRPC or HTTP on the one port."""
    with Emulator(rest=True) as emulator:
        done = run(node, suite, emulator.endpoint)
    if done.returncode != 0:
        pytest.fail(f"{suite}.test.js\n{done.stdout}", pytrace=False)


def run(node: str, suite: str, endpoint: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PUBSUB_EMULATOR_HOST": endpoint,
        # The client would look for a cloud machine's credentials, and wait for that.
        "METADATA_SERVER_DETECTION": "none",
    }
    return subprocess.run(
        [node, "--test-reporter=spec", f"{suite}.test.js"],
        cwd=FOLDER,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SUITE_TIMEOUT,
    )
