"""The cases of channels: many subscribers that wait."""

from __future__ import annotations

from dataclasses import dataclass

from .rows import Case, Row

OURS = "pullstream"
BARE = "bare grpc.aio"
GROUP = "channels and feeds"


@dataclass(frozen=True)
class ListenWork:
    """`latency` at a broker, or a mode of tests/bench/parked.py, with this many subscribers."""

    mode: str
    subscribers: int

    @property
    def needs_broker(self) -> bool:
        return self.mode == "latency"


LISTEN_CASES = (
    Case(
        "listen, publish to callback, 1,000 waiting",
        GROUP,
        {OURS: ListenWork("latency", 1_000)},
        (Row("p50_ms", at_most=2), Row("p99_ms")),
    ),
    Case(
        "listen, 10,000 waiting",
        GROUP,
        {OURS: ListenWork("parked", 10_000)},
        # 190 with 10 connections. The broker serves 300 calls of a connection, so there are 40.
        (Row("resident_mebibytes", at_most=195),),
        once=True,
    ),
    # A waiting call costs more than that in gRPC itself.
    Case(
        "listen, 10,000 waiting, grpc.aio",
        GROUP,
        {OURS: ListenWork("parked-aio", 10_000), BARE: ListenWork("bare", 10_000)},
        (Row("resident_mebibytes", against=BARE, at_least=0.88),),
        once=True,
    ),
)
