"""A subscription with a client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.subscriber.behaviour.stage import Stage, stage


@pytest.fixture
def here(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Yield a subscription with the settings of the mark `subscription`."""
    mark = request.node.get_closest_marker("subscription")
    with stage(**(mark.kwargs if mark else {})) as here:
        yield here
