"""`make bench`: pullstream and its peers, measured in turn.

Each measurement has its own process and its own server. The clients take turns for some rounds, so
that a busy moment of the machine affects all of them. Prints a table of medians, spreads, and
ratios: the median of the rounds' own ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from .cases import CASES
from .figures import outcomes
from .measure import QUICK, Effort, Rounds, measure_case, missing
from .picture import draw
from .report import (
    Results,
    machine,
    read_json,
    terminal_table,
    write_docs,
    write_json,
)
from .rows import Case
from .servers import ROOT

PAGE = ROOT / "docs" / "performance.md"
# In columns: enough for each row of the table to fit in one line.
WIDE = 190
PICTURE = ROOT / "docs" / "performance.svg"


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a glance: one short round")
    parser.add_argument("--rounds", type=int, help="how many rounds (default 3)")
    parser.add_argument("--seconds", type=float, help="how long each rate is taken (default 3)")
    parser.add_argument("--idle-seconds", type=float, help="how long to be idle (default 60)")
    parser.add_argument("--case", default="", help="only the cases whose name has this in it")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a floor is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--read",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure nothing, show the figures of these files; of a case in several, the last",
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="put table and picture into docs/"
    )
    chosen = parser.parse_args(arguments)
    if chosen.write_docs and chosen.case:
        parser.error("--write-docs needs all cases")
    return chosen


def effort(chosen: argparse.Namespace) -> Effort:
    given = {
        name: getattr(chosen, name)
        for name in ("rounds", "seconds", "idle_seconds")
        if getattr(chosen, name) is not None
    }
    return replace(QUICK if chosen.quick else Effort(), **given)


def measure_all(cases: Sequence[Case], effort: Effort, console: Console) -> Results:
    runs = {name: run for case in cases for name, run in case.runs.items()}
    for reason in sorted({found for run in runs.values() if (found := missing(run))}):
        console.print(f"skipped: {reason}")
    results: dict[str, Rounds] = {}
    for case in cases:
        with console.status(case.name):
            results[case.name] = measure_case(case, effort, console.print)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    chosen = parsed(arguments)
    console = Console()
    if not console.is_terminal:
        # A file or a pipe has no width.
        console.width = WIDE
    cases = [case for case in CASES if chosen.case in case.name]
    if chosen.read:
        results, on = read_json(chosen.read)
        cases = [case for case in cases if case.name in results]
    else:
        results, on = measure_all(cases, effort(chosen), console), machine()
    if not cases:
        console.print(f"no case has {chosen.case!r} in its name")
        return 2
    console.print(terminal_table(cases, results))
    if chosen.json:
        write_json(chosen.json, cases, results, on)
    if chosen.write_docs:
        write_docs(PAGE, cases, results, on)
        PICTURE.write_text(draw(cases, results), encoding="utf-8")
    missed = [
        f"{case.name}: {outcome.row.figure}"
        for case in cases
        for outcome in outcomes(case, results[case.name])
        if outcome.met is False
    ]
    if missed:
        console.print(f"floors missed: {'; '.join(missed)}")
    return 1 if chosen.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
