"""`make bench`: pullstream beside its peers, in turn, in one run.

Each measurement is a process of its own against a feed of its own; the clients take turns for some
rounds, so that a busy moment of the machine hits all of them. Prints a table of medians and ratios,
and writes results.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """A feed and a window, the clients to measure, and what pullstream must reach."""

    name: str
    feed: tuple[str, ...]
    max_messages: int = 1000
    against: str = "official"
    floor: float = 0.0


CASES = (
    Case("100 per response", ("--per-response", "100"), floor=10),
    Case("10 per response", ("--per-response", "10"), floor=10),
    Case("1 per response", ("--per-response", "1"), floor=8),
    Case(
        "100 per response, window 10,000",
        ("--per-response", "100"),
        max_messages=10_000,
        against="bare",
        floor=0.5,
    ),
    Case(
        "10 per response, 20 ms latency",
        ("--per-response", "10", "--latency", "0.02"),
        floor=50,
    ),
    Case(
        "1,000 ordering keys, 100 per response",
        ("--per-response", "100", "--keys", "1000"),
        floor=8,
    ),
    Case("1 KB, 100 per response", ("--per-response", "100", "--size", "1024"), floor=10),
    Case("10 KB, 10 per response", ("--per-response", "10", "--size", "10240"), floor=10),
)


@dataclass(frozen=True)
class Figures:
    """Of one client in one case: messages a second in each round, CPU a message, memory."""

    rates: list[float]
    cpu_micros: float
    peak_mebibytes: float
    threads: int

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Half the range of the rounds, as a part of the median."""
        return (max(self.rates) - min(self.rates)) / 2 / self.rate if self.rate else 0.0


@contextmanager
def feed(arguments: tuple[str, ...]) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.bench.feed", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"localhost:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def measure(client: str, case: Case, seconds: float) -> dict[str, float]:
    with feed(case.feed) as endpoint:
        command = [sys.executable, "-m", "tests.bench.client", client, endpoint]
        command += ["--seconds", str(seconds), "--max-messages", str(case.max_messages)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    if not result["messages"]:
        raise SystemExit(f"{client} received nothing in the case {case.name!r}")
    return result


def figures(measurements: list[dict[str, float]]) -> Figures:
    return Figures(
        rates=[m["messages"] / m["seconds"] for m in measurements],
        cpu_micros=statistics.median(
            m["cpu_seconds"] / max(m["messages"], 1) * 1e6 for m in measurements
        ),
        peak_mebibytes=max(m["peak_mebibytes"] for m in measurements),
        threads=int(max(m["threads"] for m in measurements)),
    )


def run(cases: list[Case], rounds: int, seconds: float) -> dict[str, dict[str, Figures]]:
    results: dict[str, dict[str, Figures]] = {}
    for case in cases:
        taken: dict[str, list[dict[str, float]]] = {}
        for _ in track(range(rounds), description=case.name, transient=True):
            for client in ("pullstream", case.against):
                taken.setdefault(client, []).append(measure(client, case, seconds))
        results[case.name] = {client: figures(m) for client, m in taken.items()}
    return results


def table(cases: list[Case], results: dict[str, dict[str, Figures]]) -> Table:
    view = Table(title="streaming pull: callback that only acks, 100 B messages unless told")
    for column in ("case", "peer", "peer msg/s", "pullstream msg/s", "ratio", "floor"):
        view.add_column(column, justify="left" if column in ("case", "peer") else "right")
    for column in ("µs CPU a message", "peak MiB"):
        view.add_column(column, justify="right")
    for case in cases:
        ours, peer = results[case.name]["pullstream"], results[case.name][case.against]
        ratio = ours.rate / peer.rate
        color = "green" if ratio >= case.floor else "red"
        view.add_row(
            case.name,
            case.against,
            f"{peer.rate:,.0f} ± {peer.spread:.0%}",
            f"{ours.rate:,.0f} ± {ours.spread:.0%}",
            f"[{color}]{ratio:.1f} x",
            f"{case.floor:g} x",
            f"{ours.cpu_micros:.1f} / {peer.cpu_micros:.1f}",
            f"{ours.peak_mebibytes:.0f} / {peer.peak_mebibytes:.0f}",
        )
    return view


def main() -> None:
    parser = argparse.ArgumentParser(description="pullstream beside its peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--case", default="", help="only the cases whose name holds this")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.case in case.name]
    results = run(cases, arguments.rounds, arguments.seconds)
    Console().print(table(cases, results))
    if arguments.json:
        plain = {
            case: {client: vars(f) | {"rate": f.rate} for client, f in by_client.items()}
            for case, by_client in results.items()
        }
        arguments.json.write_text(json.dumps(plain, indent=2))


if __name__ == "__main__":
    main()
