"""The memory of messages that are kept as parts of a request."""

from __future__ import annotations

import pytest

from pullstream_emulator.engine import log as log_module
from pullstream_emulator.engine.record import Record, RecordRun
from tests.emulator.broker import TOPIC, Broker


def kinds(broker: Broker) -> set[type]:
    """Return the types of the objects that the log has for its messages."""
    places = broker.engine.registry.topics[TOPIC].log._records._segments[0].places
    return {type(place) for place in places if place is not None}


def test_a_request_keeps_few_bytes_of_messages_that_are_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest requests are replaced first, and the kept bytes count the rest."""
    size = len("x" * 100)
    monkeypatch.setattr(log_module, "_MOST_WASTED", 25 * (size + 40))
    broker = Broker()
    for _ in range(2):
        broker.publish(*["x" * size] * 20)
    got = broker.join().take()
    total = broker.engine.kept_bytes
    broker.acknowledge(*got[:18])
    assert kinds(broker) == {RecordRun}
    broker.acknowledge(*got[20:38])
    assert kinds(broker) == {Record, RecordRun}
    assert broker.engine.kept_bytes == total - sum(each.size for each in (*got[:18], *got[20:38]))
    broker.acknowledge(*got)
    assert broker.engine.kept_bytes == 0
