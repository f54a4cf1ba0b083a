"""A server of three messages, with a client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pullstream import SubscriberClient
from tests.subscriber.fetching import Server


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with server.scripted, SubscriberClient(endpoint=server.scripted.endpoint) as server.client:
        yield server
