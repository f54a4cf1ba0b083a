"""The fixtures of these tests."""

import pytest

from .recorder import recording

recorder = pytest.fixture(recording)
