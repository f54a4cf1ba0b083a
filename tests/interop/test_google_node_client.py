"""@google-cloud/pubsub for Node against the broker: node/*.test.js, each with an empty one.

Without node or npm they are skipped with one line. With `node` in the environment's
PULLSTREAM_REQUIRE (as in CI) they fail instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pullstream_emulator import Emulator
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
def test_google_node_client(suite: str, node: str) -> None:
    """The tests of one subject pass, over gRPC or HTTP on one port."""
    with Emulator(rest=True) as emulator:
        done = run(node, suite, emulator.endpoint)
    if done.returncode != 0:
        pytest.fail(f"{suite}.test.js\n{done.stdout}", pytrace=False)


def run(node: str, suite: str, endpoint: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PUBSUB_EMULATOR_HOST": endpoint,
        # Otherwise the client would look for a cloud machine's credentials and wait for them.
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
