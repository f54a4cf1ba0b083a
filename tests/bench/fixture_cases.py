"""The cases of the pytest fixtures: their cost for each test."""

from __future__ import annotations

from dataclasses import dataclass

from .peers import OURS
from .rows import Case, Row

OWN = "a broker for each test"


@dataclass(frozen=True)
class FixtureWork:
    """Tests with a fixture. See tests/bench/fixture_client.py for `mode`."""

    mode: str
    tests: int = 1000


FIXTURE_CASES = (
    Case(
        "1,000 tests with a broker",
        "tests of users",
        {OURS: FixtureWork("shared"), OWN: FixtureWork("own")},
        (
            Row("fixture_ms", at_most=2),
            Row("fixture_cpu_ms", at_most=2),
            Row("fixture_ms", run=OWN),
            Row("fixture_cpu_ms", run=OWN),
            Row("plugin_ms", at_most=5),
        ),
    ),
)
