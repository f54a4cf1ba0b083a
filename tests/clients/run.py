"""`make clients`: Google's clients and Apache Beam on our broker and on Google's emulator.

    python -m tests.clients.run --only 'go/nacks' --only '*/stop*' --turns 10 --busy 2

Each run has its own broker, program and subscription. What the client reported of each
acknowledgement is compared with the broker's backlog afterwards. Prints a table of all figures:
smallest, median and largest value of the turns. Exits with 1 if our broker misses a floor
(scenarios.py). What is not installed is skipped by name.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from google.api_core.exceptions import GoogleAPICallError
from rich.console import Console

from tests.bench.servers import Broker, NotStarted, missing, served

from .programs import BUILD, PROGRAMS, CannotBuild
from .report import GOOGLE, OURS, Run, table
from .scenarios import SCENARIOS, Scenario
from .session import run

BROKERS = {OURS: Broker.OURS, GOOGLE: Broker.JAVA}
# In columns: enough for each row of the table to fit in one line.
WIDE = 150


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make clients ARGS=...", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="CLIENT/SCENARIO", help="go/stop, */nacks*; repeatable"
    )
    parser.add_argument("--broker", choices=BROKERS, help="only this one")
    parser.add_argument("--turns", type=int, default=5, help="runs of each kind (default 5)")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep a core busy")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all runs there, as JSON")
    parser.add_argument("--list", action="store_true", help="list the names for --only")
    return parser.parse_args(arguments)


def kinds(only: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return client and scenario of each kind of run that is wanted."""
    return [
        (client, name)
        for name, scenario in SCENARIOS.items()
        for client, program in PROGRAMS.items()
        if (program.admin or not scenario.admin)
        and program.pipeline == scenario.pipeline
        and any(fnmatch(f"{client}/{name}", pattern) for pattern in only or ["*"])
    ]


def server_for(broker: str, scenario: Scenario) -> Broker:
    """Return the kind of broker that the scenario needs."""
    return Broker.SMALL_PULLS if broker == OURS and scenario.small_pulls else BROKERS[broker]


def usable(broker: str, scenario: Scenario) -> bool:
    """Tell whether the broker has what the scenario needs."""
    return broker == OURS or not scenario.fault


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many cores busy during the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all runs and return the exit status."""
    chosen = parsed(arguments)
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        # A file or a pipe has no width.
        console.width = WIDE
    wanted = kinds(chosen.only)
    if chosen.list or not wanted:
        console.print(*(f"{client}/{name}" for client, name in wanted or kinds(None)), sep="\n")
        return 0 if chosen.list else 2
    commands: dict[str, list[str]] = {}
    for client in dict.fromkeys(client for client, _ in wanted):
        try:
            commands[client] = PROGRAMS[client].built()
        except CannotBuild as error:
            console.print(f"skipped: {client} {error}", markup=False)
    brokers = [name for name in BROKERS if chosen.broker in (None, name)]
    for name in brokers.copy():
        if reason := missing(BROKERS[name]):
            console.print(f"skipped: {reason}")
            brokers.remove(name)
    plan = [
        (turn, client, name, broker)
        for turn in range(chosen.turns)
        for client, name in wanted
        if client in commands
        for broker in brokers
        if usable(broker, SCENARIOS[name])
    ]
    runs: list[Run] = []
    with busy(chosen.busy):
        for place, (turn, client, name, broker) in enumerate(plan, 1):
            log = BUILD / f"{client}-{name}-{broker}-{turn}.log"
            try:
                with served(server_for(broker, SCENARIOS[name])) as server:
                    figures = run(commands[client], SCENARIOS[name], server.endpoint, log)
            except (GoogleAPICallError, NotStarted, OSError) as error:
                console.print(f"{client}/{name} was not measured: {error!r}", markup=False)
                figures = {"not_ended": 1}
            runs.append(Run(name, client, broker, chosen.busy, figures))
            shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items() if value)
            console.print(f"{place}/{len(plan)} {broker} {client}/{name}: {shown}", markup=False)
            if chosen.out:
                chosen.out.write_text(json.dumps([run.to_json() for run in runs], indent=1))
    console.print(table(runs))
    missed = [text for run in runs for text in run.missed()]
    ours = sum(run.broker == OURS for run in runs)
    console.print(f"{ours} runs on our broker: floors missed {len(missed)} times")
    for text, count in {text: missed.count(text) for text in missed}.items():
        console.print(f"missed, {count} times: {text}", markup=False)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
