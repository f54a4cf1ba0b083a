"""The pytest fixtures, used by the test suite of another project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.completed import run_command

ROOT = Path(__file__).parents[2]

CONFTEST = """
import pytest
from pullstream_emulator.pytest_plugin import pubsub_emulator, pubsub_emulator_options
from pullstream_emulator.pytest_plugin import pubsub_session_emulator
from pullstream_emulator.pytest_plugin import pubsub_project, pubsub_shared_emulator

@pytest.fixture(scope="session")
def pubsub_config():
    return {
        "topics": [{"name": "projects/shop/topics/orders"}],
        "subscriptions": [
            {"name": "projects/shop/subscriptions/billing", "topic": "projects/shop/topics/orders"}
        ],
    }
"""

# Runs first, while there is no session-wide broker.
TESTS_WITH_A_BROKER_EACH = """
import os
import threading

def test_with(pubsub_emulator):
    assert os.environ["PUBSUB_EMULATOR_HOST"] == pubsub_emulator.endpoint

def test_after():
    assert os.environ["PUBSUB_EMULATOR_HOST"] == "before:1"
    assert "pullstream-emulator" not in [thread.name for thread in threading.enumerate()]
"""

# Another module gives each test a broker with options.
TESTS_WITH_OPTIONS = """
import pytest
from pullstream_protocol.clock import ManualClock

@pytest.fixture
def clock():
    return ManualClock()

@pytest.fixture
def pubsub_emulator_options(clock):
    return {"clock": clock, "profile": "emulator"}

def test_the_clock_is_the_tests_own(clock, pubsub_emulator):
    assert pubsub_emulator.clock.now() == clock.now()
    clock.advance(10)
    assert pubsub_emulator.clock.now() == clock.now()
    assert pubsub_emulator.engine.min_ack_deadline == 1
"""

TESTS_WITH_A_SHARED_BROKER = """
import os
import re
import pytest

TOPIC, BILLING = "projects/shop/topics/orders", "projects/shop/subscriptions/billing"
projects = []

@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_finds_the_start(turn, pubsub_shared_emulator, pubsub_session_emulator):
    broker = pubsub_shared_emulator
    assert broker is pubsub_session_emulator
    assert os.environ["PUBSUB_EMULATOR_HOST"] == broker.endpoint
    assert os.environ["PUBSUB_PROJECT_ID"] == "test-project"
    assert broker.backlog(BILLING) == 0
    assert broker.history.events() == []
    assert broker.faults.active == ()
    broker.publish(TOPIC, "a")
    broker.faults.drop("Pull")

@pytest.mark.parametrize("turn", [1, 2])
def test_the_sessions_broker_keeps_what_tests_leave(turn, pubsub_session_emulator):
    assert os.environ["PUBSUB_EMULATOR_HOST"] == pubsub_session_emulator.endpoint
    assert pubsub_session_emulator.backlog(BILLING) == turn
    pubsub_session_emulator.publish(TOPIC, "a")

@pytest.mark.parametrize("turn", [1, 2])
def test_Projects_are_a_tests_own_however_long_its_name(turn, pubsub_project, pubsub_emulator):
    assert os.environ["PUBSUB_PROJECT_ID"] == pubsub_project
    assert re.fullmatch("[a-z][a-z0-9-]{4,28}[a-z0-9]", pubsub_project)
    assert pubsub_project not in projects
    projects.append(pubsub_project)

def test_the_order_of_fixtures_does_not_matter(pubsub_emulator, pubsub_project):
    assert os.environ["PUBSUB_PROJECT_ID"] == pubsub_project
    assert os.environ["PUBSUB_EMULATOR_HOST"] == pubsub_emulator.endpoint

def test_a_broker_of_ones_own_is_not_the_sessions(pubsub_emulator, pubsub_session_emulator):
    assert pubsub_emulator.endpoint != pubsub_session_emulator.endpoint

def test_after():
    assert os.environ["PUBSUB_PROJECT_ID"] == "before"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return the folder of a project with a test suite."""
    (tmp_path / "test_1.py").write_text(TESTS_WITH_A_BROKER_EACH, encoding="utf-8")
    (tmp_path / "test_2.py").write_text(TESTS_WITH_A_SHARED_BROKER, encoding="utf-8")
    (tmp_path / "test_3.py").write_text(TESTS_WITH_OPTIONS, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    return tmp_path


def test_the_pytest_fixtures_provide_fresh_and_shared_brokers_and_restore_the_environment(
    suite: Path,
) -> None:
    """In the inner tests, a broker for one test leaves no trace, and one can be shared."""
    before = {"PUBSUB_EMULATOR_HOST": "before:1", "PUBSUB_PROJECT_ID": "before"}
    ran = run_command(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=suite,
        env={**os.environ, **before, "PYTHONPATH": str(ROOT)},
    )
    assert "12 passed" in ran.stdout, ran.stdout + ran.stderr


TESTS_WITH_PROJECTS = """
import re
import pytest

@pytest.mark.parametrize("case", ["first", "second", "\u00e4", "1"])
def test_names_that_begin_alike_have_projects_of_their_own(case, pubsub_project):
    assert re.fullmatch("[a-z][a-z0-9-]{4,28}[a-z0-9]", pubsub_project)
    print("PROJECT", pubsub_project)

def test_1(pubsub_project):
    assert re.fullmatch("test-1-[0-9a-f]+", pubsub_project)
"""


def test_each_test_of_every_pytest_run_and_process_gets_a_unique_project_from_the_fixture(
    tmp_path: Path,
) -> None:
    """Runs that share a broker, and processes of pytest-xdist, do not meet in a project."""
    (tmp_path / "test_1.py").write_text(TESTS_WITH_PROJECTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    runs = [
        subprocess.Popen([*command, "test_1.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    projects = re.findall(r"PROJECT (\S+)", "".join(outputs))
    assert len(projects) == len(set(projects)) == 8


TESTS_WITH_LOST_ERRORS = """
import pytest
from pullstream import SubscriberClient

def subscribe(client):
    return client.subscribe("projects/shop/subscriptions/nope", print)

def wait_until_done(future):
    while not future.done():
        pass

@pytest.mark.parametrize("fixture", ["pubsub_emulator", "pubsub_shared_emulator"])
def test_that_misses_the_error(fixture, request):
    request.getfixturevalue(fixture)
    with SubscriberClient() as client:
        wait_until_done(subscribe(client))

@pytest.mark.parametrize("fixture", ["pubsub_emulator", "pubsub_shared_emulator"])
def test_that_asks_for_the_error_later(fixture, request):
    request.getfixturevalue(fixture)
    with SubscriberClient() as client:
        future = subscribe(client)
        wait_until_done(future)
        assert "nope" in str(future.exception())
"""


def test_the_pytest_plugin_fails_a_test_whose_subscription_ended_with_an_unnoticed_error(
    suite: Path,
) -> None:
    """The report names the subscription. An error that the test asks for does not count."""
    (suite / "test_1.py").write_text(TESTS_WITH_LOST_ERRORS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    ran = run_command(
        [*command, "test_1.py"],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "4 passed, 2 errors" in ran.stdout, ran.stdout + ran.stderr
    assert ran.stdout.count("ERROR at teardown of test_that_misses_the_error") == 2
    assert "the subscription to projects/shop/subscriptions/nope has ended" in ran.stdout
