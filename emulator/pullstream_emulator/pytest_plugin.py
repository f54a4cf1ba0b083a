"""pytest fixtures for every project that has pullstream installed; see docs/testing.md."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
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
    """
    # Imported late, so that a test session without this fixture does not load gRPC.
    from .testing import Emulator

    with Emulator(**pubsub_emulator_options) as emulator:
        _point_at(emulator, request, monkeypatch)
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
) -> Emulator:
    """The session's broker, reset to its initial state for each test, except for its clock."""
    pubsub_session_emulator.reset()
    _point_at(pubsub_session_emulator, request, monkeypatch)
    return pubsub_session_emulator


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
