"""`make upstream UPSTREAM=path`: Google's own Python suites against the broker.

`path` holds the source of google-cloud-pubsub (its tests/system.py), of googleapis/python-pubsub
(its samples/snippets), or of both. Each suite runs unchanged with its own broker. Exits with 1 if a
case fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.servers import Broker, serving

from .outcome import Outcome, read_report
from .suites import Found, find

PROJECT = "upstream-suites"

# The time limit of one case, in seconds. One of the samples listens for 200.
CASE_TIMEOUT = 300

# The columns to use when the width of the output is unknown.
WIDE = 120

# The suites read the project from credentials. No server checks them.
CREDENTIALS = {
    "type": "authorized_user",
    "client_id": "nobody",
    "client_secret": "nothing",
    "refresh_token": "nothing",
}


class NoReport(Exception):
    """pytest ended without running the suite. The text is its output."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites and return the exit status."""
    parser = argparse.ArgumentParser(prog="make upstream UPSTREAM=path", description=__doc__)
    parser.add_argument("upstream", type=Path, help="folder with the source of Google's client")
    parser.add_argument("--python", default=sys.executable, help="the one that has what they need")
    parser.add_argument("--suite", default="", help="only the suites with this in their name")
    chosen = parser.parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    found = [each for each in find(chosen.upstream.resolve()) if chosen.suite in each.suite.name]
    if not found:
        console.print(f"no suite of google-cloud-pubsub under {chosen.upstream}")
        return 2
    outcomes: dict[str, Outcome] = {}
    for each in found:
        with console.status(each.suite.name):
            try:
                outcomes[each.suite.name] = run_suite(each, chosen.python)
            except NoReport as error:
                console.print(
                    f"{each.path} could not be run:\n{error}", markup=False, soft_wrap=True
                )
                return 2
    show(outcomes, console)
    return 1 if any(outcome.failed for outcome in outcomes.values()) else 0


def run_suite(found: Found, python: str) -> Outcome:
    """Run one suite with its own broker."""
    with tempfile.TemporaryDirectory() as scratch, serving(Broker.OURS) as endpoint:
        credentials = Path(scratch, "credentials.json")
        credentials.write_text(json.dumps(CREDENTIALS))
        environment = {
            **os.environ,
            "PUBSUB_EMULATOR_HOST": endpoint,
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
            # Keeps the source tree unchanged.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        cases = collect(found, python, environment)
        beyond = {case: why for case in cases if (why := found.suite.reason(case))}
        report = Path(scratch, "report.xml")
        options = [f"--junit-xml={report}", f"--timeout={CASE_TIMEOUT}"]
        output = pytest(
            found, python, environment, *options, *(case for case in cases if case not in beyond)
        )
        if not report.exists():
            raise NoReport(output)
        return read_report(report, Counter(beyond.values()))


def collect(found: Found, python: str, environment: Mapping[str, str]) -> list[str]:
    """Return the ids of the suite's cases as pytest takes them."""
    file = found.path.name
    output = pytest(found, python, environment, "--collect-only", "-q", file)
    # The text before the colons depends on the place of the tree's pytest.ini.
    listed = [f"{file}::{case}" for case in re.findall(r"^\S*?::(\S+)$", output, re.MULTILINE)]
    if not listed:
        raise NoReport(output)
    return listed


def pytest(found: Found, python: str, environment: Mapping[str, str], *arguments: str) -> str:
    """Call pytest in the suite's folder. Return its output, also after a failed run."""
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=found.path.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout


def show(outcomes: Mapping[str, Outcome], console: Console) -> None:
    """Print the table, and below it the failed cases and those not run, with reasons."""
    table = Table("suite", *("passed", "failed", "skipped", "not run"))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, outcome in outcomes.items():
        table.add_row(
            name,
            f"{outcome.passed}/{outcome.cases}",
            str(len(outcome.failed)),
            str(sum(outcome.skipped.values())),
            str(sum(outcome.beyond.values())),
        )
    console.print(table)
    for name, outcome in outcomes.items():
        for case, error in outcome.failed.items():
            console.print(f"{name}: {case} failed: {error}", markup=False, soft_wrap=True)
        for reason, count in outcome.skipped.items():
            console.print(f"{name}: {count} skipped: {reason}", markup=False, soft_wrap=True)
        for reason, count in outcome.beyond.items():
            console.print(f"{name}: {count} not run: {reason}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    raise SystemExit(main())
