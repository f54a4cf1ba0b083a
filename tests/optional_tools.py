"""Optional tools: a missing one skips tests, except where PULLSTREAM_REQUIRE names it."""

from __future__ import annotations

import os

import pytest


def missing(name: str, why: str) -> None:
    """Skip this test, or fail it where the environment's PULLSTREAM_REQUIRE lists `name`."""
    if name in os.environ.get("PULLSTREAM_REQUIRE", ""):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)
