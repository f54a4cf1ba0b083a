"""The cases in which many connections come at once, on each kind of port."""

from __future__ import annotations

from dataclasses import dataclass

from .rows import Case, Row
from .servers import Broker

SHARED, OWN, APART = "shared port", "gRPC's own port", "gRPC's own port, --rest-port"


@dataclass(frozen=True)
class ArrivalWork:
    """A broker, a mode of tests/bench/arrival_client.py, and the number of connections."""

    server: Broker
    mode: str
    clients: int


def on_each_port(mode: str, clients: int) -> dict[str, ArrivalWork]:
    return {
        SHARED: ArrivalWork(Broker.OURS, mode, clients),
        OWN: ArrivalWork(Broker.GRPC_ONLY, mode, clients),
        APART: ArrivalWork(Broker.HTTP_APART, mode, clients),
    }


GROUP = "the broker"

ARRIVAL_CASES = (
    Case(
        "1,000 silent connections",
        GROUP,
        on_each_port("silent", 1_000),
        (
            Row("longest_ms", run=SHARED, against=OWN, at_most=300),
            Row("longest_ms", run=APART, against=OWN),
        ),
    ),
    Case(
        "1,200 clients connect",
        GROUP,
        on_each_port("clients", 1_200),
        (
            Row("longest_ms", run=SHARED, against=OWN, at_most=500),
            Row("served_ms", run=SHARED, against=OWN, at_most=3_000),
            Row("longest_ms", run=APART, against=OWN),
            Row("served_ms", run=APART, against=OWN),
        ),
    ),
)
