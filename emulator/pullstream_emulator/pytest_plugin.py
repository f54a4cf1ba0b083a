"""pytest fixtures for every project that has pullstream installed; see docs/testing.md."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .config import ConfigSource
    from .testing import Emulator

# A project id has at most 30 characters: a part of the test's name, a hyphen, and random digits,
# which make it unique in all runs and processes that share a broker.
_NAME_LENGTH = 17
_RANDOM_DIGITS = 12


@pytest.fixture(scope="session")
def pubsub_emulator_options() -> dict[str, Any]:
    """Arguments of `Emulator` for all fixtures, such as `{"profile": "emulator"}`. Override this.

    A fixture that only `pubsub_emulator` uses may have a smaller scope, for example to give each
    test its own ManualClock.
    """
    return {}


@pytest.fixture
def pubsub_emulator(
    pubsub_emulator_options: dict[str, Any],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Emulator]:
    """A fresh, empty broker for one test.

    During the test, PUBSUB_EMULATOR_HOST names its address, so that pullstream's and Google's
    clients find it. PUBSUB_PROJECT_ID is `test-project`, or the project of `pubsub_project`.

    The test fails if a subscription, or another activity of pullstream's client that the test has
    begun, ends with an error that the test has not asked its future for.
    """
    # Imported late, so that a test session without this fixture does not load gRPC.
    from .testing import Emulator

    with Emulator(**pubsub_emulator_options) as emulator:
        _point_at(emulator, request, monkeypatch)
        with _no_error_missed():
            yield emulator


@pytest.fixture(scope="session")
def pubsub_config() -> ConfigSource | None:
    """Initial content of the session's broker: a file's path, or its content. Override this."""
    return None


@pytest.fixture(scope="session")
def pubsub_session_emulator(
    pubsub_config: ConfigSource | None, pubsub_emulator_options: dict[str, Any]
) -> Iterator[Emulator]:
    """One broker for all tests. Tests see the resources that earlier tests left in it.

    PUBSUB_EMULATOR_HOST names its address from then on.
    """
    from .testing import Emulator

    options = {"config": pubsub_config, **pubsub_emulator_options}
    with Emulator(**options) as emulator, pytest.MonkeyPatch.context() as monkeypatch:
        _connect_to(emulator, monkeypatch)
        yield emulator


@pytest.fixture
def pubsub_shared_emulator(
    pubsub_session_emulator: Emulator,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Emulator]:
    """The session's broker, reset to its initial state for each test, except for its clock.

    A test fails as with `pubsub_emulator`.
    """
    pubsub_session_emulator.reset()
    _point_at(pubsub_session_emulator, request, monkeypatch)
    with _no_error_missed():
        yield pubsub_session_emulator


@pytest.fixture
def pubsub_project(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a project that no other test uses; PUBSUB_PROJECT_ID is set to it.

    It is unique on a broker that several test runs or processes share.
    """
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).lstrip("-0123456789")
    name = words[:_NAME_LENGTH].rstrip("-") or "test"
    project = f"{name}-{uuid.uuid4().hex[:_RANDOM_DIGITS]}"
    monkeypatch.setenv("PUBSUB_PROJECT_ID", project)
    return project


class _EndedActivities(logging.Handler):
    """Keeps the records of activities that ended with an error."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def _no_error_missed() -> Iterator[None]:
    """Fail the test at the end if an activity that began in it has failed unnoticed.

    The client is another package, so this listens to its logger. Its records tell when the activity
    began, and whether anybody has asked for the error, also after it was logged.
    """
    from pullstream_protocol.clock import SYSTEM_CLOCK

    began_at, ended = SYSTEM_CLOCK.monotonic(), _EndedActivities()
    logger = logging.getLogger("pullstream.activity")
    logger.addHandler(ended)
    try:
        yield
    finally:
        logger.removeHandler(ended)
    missed = [
        record.getMessage()
        for record in ended.records
        if getattr(record, "began_at", began_at) >= began_at and not _was_asked(record)
    ]
    if missed:
        pytest.fail("\n".join(missed), pytrace=False)


def _was_asked(record: logging.LogRecord) -> bool:
    was_asked: Callable[[], bool] = getattr(record, "was_asked", lambda: False)
    return was_asked()


def _connect_to(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
    # These are for another broker. With them, clients would use TLS to connect to this one.
    for name in ("PULLSTREAM_TOKEN", "PULLSTREAM_CA"):
        monkeypatch.delenv(name, raising=False)


def _point_at(
    emulator: Emulator, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    _connect_to(emulator, monkeypatch)
    # Works in any order in which the test names the two fixtures.
    has_own = "pubsub_project" in request.fixturenames
    project = request.getfixturevalue("pubsub_project") if has_own else "test-project"
    monkeypatch.setenv("PUBSUB_PROJECT_ID", project)
