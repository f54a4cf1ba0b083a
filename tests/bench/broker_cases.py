"""The cases of the broker itself, with a bare grpcio client, compared with Google's emulator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .rows import Case, Row
from .servers import Broker

JAVA = "Google's emulator"
MEMORY, DISK = "in memory", "on disk"
OWN_PORT = "gRPC's own port"
MILLION, FEW = "1,000,000 messages", "20,000 messages"


@dataclass(frozen=True)
class Work:
    """The work of one broker.

    Attributes:
        mode: "ready", which only starts the broker, or a mode of tests/bench/broker_client.py,
            whose options have the names of the other fields.
    """

    server: Broker
    mode: str
    batch: int = 100
    messages: int = 20_000
    deliver: int = 0
    keys: int = 0
    subscriptions: int = 1
    streams: int = 1


def both(mode: str, *, batch: int = 100, java_messages: int = 20_000) -> dict[str, Work]:
    """Return the runs of our broker and of Google's."""
    return {
        "pullstream": Work(Broker.OURS, mode, batch),
        JAVA: Work(Broker.JAVA, mode, batch, java_messages),
    }


def beside_own_port(case: Case) -> Case:
    """Return the case with its first run on gRPC's own port added, if rates are measured."""
    name, work = next(iter(case.runs.items()))
    if not any(row.figure == "rate" for row in case.rows):
        return case
    server = Broker.DISK_GRPC_ONLY if work.server is Broker.DISK else Broker.GRPC_ONLY
    row = Row("rate", run=name, against=OWN_PORT, at_least=0.75)
    runs = {**case.runs, OWN_PORT: replace(work, server=server)}
    return replace(case, runs=runs, rows=(*case.rows, row))


GROUP = "the broker, a bare client"

_SHARED_PORT_CASES = (
    Case(
        "ready to serve",
        GROUP,
        both("ready"),
        (
            Row("ready_ms", against=JAVA, at_most=700),
            Row("resident_mebibytes", against=JAVA, at_most=60),
        ),
    ),
    Case(
        "publish to receipt, one at a time",
        GROUP,
        both("receipt"),
        (Row("p50_ms", against=JAVA, at_most=3), Row("p99_ms", against=JAVA, at_most=10)),
    ),
    Case(
        "publish, batches of 100",
        GROUP,
        both("publish"),
        (Row("rate", against=JAVA, at_least=1),),
    ),
    Case(
        "publish, one by one",
        GROUP,
        both("publish", batch=1),
        (Row("rate", against=JAVA, at_least=0.8),),
    ),
    Case(
        "deliver and acknowledge",
        GROUP,
        both("deliver", java_messages=5_000),
        (Row("rate", against=JAVA, at_least=30),),
    ),
    Case(
        "a backlog of a million",
        GROUP,
        {
            MILLION: Work(Broker.OURS, "deliver", messages=1_000_000, deliver=100_000),
            FEW: Work(Broker.OURS, "deliver"),
        },
        (
            Row("bytes_each", run=MILLION, at_most=500),
            Row("rate", run=MILLION, against=FEW, at_least=0.8),
        ),
    ),
    Case(
        "on disk, batches of 100",
        GROUP,
        {DISK: Work(Broker.DISK, "publish"), MEMORY: Work(Broker.OURS, "publish")},
        (Row("rate", run=DISK, against=MEMORY, at_least=0.7),),
    ),
    Case(
        "10,000 ordering keys",
        GROUP,
        {
            "10,000 keys": Work(Broker.OURS, "deliver", keys=10_000),
            "100 keys": Work(Broker.OURS, "deliver", keys=100),
        },
        (Row("rate", run="10,000 keys", against="100 keys", at_least=0.8),),
    ),
    Case(
        "1,000 open streams",
        GROUP,
        {
            "1,000 streams": Work(Broker.OURS, "deliver", streams=1_000),
            "1 stream": Work(Broker.OURS, "deliver"),
        },
        (Row("rate", run="1,000 streams", against="1 stream", at_least=0.8),),
    ),
    Case(
        "1,000 subscriptions on a topic",
        GROUP,
        {
            "1,000 subscriptions": Work(Broker.OURS, "publish", batch=10, subscriptions=1_000),
            "1 subscription": Work(Broker.OURS, "publish", batch=10),
        },
        (Row("rate", run="1,000 subscriptions", against="1 subscription"),),
    ),
)

BROKER_CASES = tuple(beside_own_port(case) for case in _SHARED_PORT_CASES)
