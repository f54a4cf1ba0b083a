"""pytest fixtures, there for every project that has pullstream installed: see docs/testing.md."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .config import ConfigSource
    from .testing import Emulator

# Project ids have at most 30 characters, some of which make them different.
_SLUG_LENGTH = 24

_numbers = itertools.count(1)


@pytest.fixture
def pubsub_emulator(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Emulator]:
    """A fresh, empty broker for one test.

    PUBSUB_EMULATOR_HOST points at it meanwhile, so pullstream's and Google's clients find it by
    themselves; PUBSUB_PROJECT_ID is `test-project`, or what `pubsub_project` says.
    """
    # Imported late: a test session that does not use the fixture should not pay for gRPC.
    from .testing import Emulator

    with Emulator() as emulator:
        _point_at(emulator, request, monkeypatch)
        yield emulator


@pytest.fixture(scope="session")
def pubsub_config() -> ConfigSource | None:
    """What the session's broker begins with: a file's path, or its content. To be overridden."""
    return None


@pytest.fixture(scope="session")
def pubsub_session_emulator(pubsub_config: ConfigSource | None) -> Iterator[Emulator]:
    """One broker for all tests, with whatever they leave in it.

    PUBSUB_EMULATOR_HOST points at it from then on.
    """
    from .testing import Emulator

    with Emulator(config=pubsub_config) as emulator, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        yield emulator


@pytest.fixture
def pubsub_shared_emulator(
    pubsub_session_emulator: Emulator,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Emulator:
    """The session's broker, for each test as it was at the start: only its clock goes on."""
    pubsub_session_emulator.reset()
    _point_at(pubsub_session_emulator, request, monkeypatch)
    return pubsub_session_emulator


@pytest.fixture
def pubsub_project(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a project that no other test has; PUBSUB_PROJECT_ID is set to it meanwhile."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:_SLUG_LENGTH].strip("-")
    project = f"{slug}-{next(_numbers)}"
    monkeypatch.setenv("PUBSUB_PROJECT_ID", project)
    return project


def _point_at(
    emulator: Emulator, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
    # Whichever of the two fixtures the test names first.
    has_own = "pubsub_project" in request.fixturenames
    project = request.getfixturevalue("pubsub_project") if has_own else "test-project"
    monkeypatch.setenv("PUBSUB_PROJECT_ID", project)
