"""Skips tests that need the official client for Python where it is missing, with one line.

Tests of other clients run. With `interop` in the environment's PULLSTREAM_REQUIRE (as in CI) the
tests fail instead.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

# Their clients are not Python's.
OF_OTHERS = {"test_google_node_client.py"}

MISSING = "google-cloud-pubsub is not installed: pip install 'pullstream[interop]'"


def is_installed() -> bool:
    try:
        return importlib.util.find_spec("google.cloud.pubsub_v1") is not None
    except ModuleNotFoundError:
        # The parent package is missing too.
        return False


class NotRunnable(pytest.Module):
    """A test module that is not imported because a package it needs is missing."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        if "interop" in os.environ.get("PULLSTREAM_REQUIRE", ""):
            pytest.fail(MISSING, pytrace=False)
        pytest.skip(MISSING, allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    if is_installed() or module_path.name in OF_OTHERS:
        return None
    module: pytest.Module = NotRunnable.from_parent(parent, path=module_path)
    return module
