"""The results as text: a table for the terminal, the same for the docs, and JSON for machines."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from itertools import groupby
from pathlib import Path

from rich.table import Table

from tests.written_block import write_block

from .figures import KINDS, Outcome, Summary, judge, outcomes, summary
from .measure import Rounds
from .peers import OURS
from .rows import Case, Row

BLOCK = "bench"

# Most figures lack these values, so the columns are filled for rates only.
BESIDE_RATES = ("cpu_micros", "peak_mebibytes")

HEADINGS = (
    *("case", "figure", "peer", "its", "ours", "ratio", "floor"),
    *("µs CPU a message, ours / its", "peak MiB, ours / its"),
)
COLORS = {True: "green", False: "red", None: "default"}

# The rounds of each case, by name.
Results = dict[str, Rounds]


def lines(cases: Sequence[Case], results: Results) -> Iterator[tuple[Outcome, list[str]]]:
    """Yield the outcome and the cells of each row of the table."""
    for case in cases:
        for index, outcome in enumerate(outcomes(case, results[case.name])):
            yield (
                outcome,
                [
                    case.name if index == 0 else "",
                    _figure_cell(outcome.row),
                    outcome.row.against or "",
                    _value(outcome.row.figure, outcome.peer),
                    _value(outcome.row.figure, outcome.ours),
                    _ratio_cell(outcome, cases, results),
                    _floor_cell(outcome.row),
                    *(_pair_cell(outcome.row, results[case.name], name) for name in BESIDE_RATES),
                ],
            )


def _figure_cell(row: Row) -> str:
    label = KINDS[row.figure].label
    return label if row.run == OURS else f"{label}: {row.run}"


def _value(figure: str, value: Summary | None) -> str:
    if value is None:
        return "-"
    spread = f" ± {value.spread:.0%}" if value.spread else ""
    return KINDS[figure].text(value.median) + spread


def _ratio_cell(outcome: Outcome, cases: Sequence[Case], results: Results) -> str:
    if outcome.ratio is None:
        return "-"
    text = (
        f"{outcome.ratio.median:.2g} x"
        if outcome.ratio.median < 10
        else (f"{outcome.ratio.median:.1f} x")
    )
    if outcome.ratio.spread:
        text += f" ± {outcome.ratio.spread:.0%}"
    for case in cases:
        if case.name == outcome.row.compare:
            compared = judge(case.rows[0], results[case.name]).ratio
            text += f" (100 B: {compared.median:.1f} x)" if compared else ""
    return text


def _floor_cell(row: Row) -> str:
    if row.at_least is not None:
        return f"≥ {row.at_least:g} x" if row.against else f"≥ {row.at_least:,.0f}"
    return "" if row.at_most is None else f"≤ {row.at_most:g}"


def _pair_cell(row: Row, rounds: Rounds, figure: str) -> str:
    if row.figure != "rate":
        return ""
    ours = summary(rounds, row.run, figure)
    peer = summary(rounds, row.against, figure) if row.against else None
    if not ours and not peer:
        return ""
    return " / ".join(KINDS[figure].text(one.median) if one else "-" for one in (ours, peer))


def terminal_table(cases: Sequence[Case], results: Results) -> Table:
    view = Table(title="100 B messages and a callback that only acks, unless the case tells more")
    for heading in HEADINGS:
        is_text = heading in ("case", "figure", "peer")
        view.add_column(heading, justify="left" if is_text else "right")
    for outcome, cells in lines(cases, results):
        if cells[0]:
            view.add_section()
        color = COLORS[outcome.met]
        cells[5] = f"[{color}]{cells[5]}[/]"
        cells[6] = f"[{color}]{cells[6]}[/]"
        view.add_row(*cells)
    return view


def markdown_tables(cases: Sequence[Case], results: Results) -> str:
    """Return a heading and a table for each group of cases.

    The tables have the first figure of each case and those with a floor, without details.
    """
    parts = []
    for group, some in groupby(cases, key=lambda case: case.group):
        parts += [f"### {group[0].upper()}{group[1:]}", _markdown_table(list(some), results)]
    return "\n\n".join(parts)


def _markdown_table(cases: Sequence[Case], results: Results) -> str:
    """Return a table without the columns that have no value in it."""
    rows = []
    for outcome, cells in lines(cases, results):
        if outcome.met is False:
            cells[6] += " **missed**"
        has_floor = outcome.met is not None
        if cells[0] or outcome.met is False or (has_floor and not outcome.row.detail):
            rows.append(cells)
    used = [index for index in range(len(HEADINGS)) if any(cells[index] for cells in rows)]
    head = [list(HEADINGS), ["---"] * 3 + ["---:"] * (len(HEADINGS) - 3)]
    return "\n".join(
        "| " + " | ".join(cells[index] for index in used) + " |" for cells in [*head, *rows]
    )


def machine() -> dict[str, str]:
    """Return the machine and the versions used for the figures."""
    found = {"cores": str(os.cpu_count()), "Python": platform.python_version()}
    for package in ("grpcio", "protobuf", "google-cloud-pubsub", "pullstream"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "-"
    return found


def write_docs(page: Path, cases: Sequence[Case], results: Results, on: dict[str, str]) -> None:
    """Put the table between the two comments of a page, which must exist."""
    told = ", ".join(f"{name} {value}" for name, value in on.items())
    write_block(page, BLOCK, f"{markdown_tables(cases, results)}\n\nMeasured on: {told}.")


def write_json(path: Path, cases: Sequence[Case], results: Results, on: dict[str, str]) -> None:
    judged = {
        case.name: [asdict(outcome) for outcome in outcomes(case, results[case.name])]
        for case in cases
    }
    whole = {"machine": on, "rounds": results, "outcomes": judged}
    path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def read_json(paths: Sequence[Path]) -> tuple[Results, dict[str, str]]:
    """Return the rounds in some files, and the machine that measured the last one.

    If several files have a case, the last of them counts.
    """
    results: Results = {}
    on: dict[str, str] = {}
    for path in paths:
        whole = json.loads(path.read_text(encoding="utf-8"))
        results |= whole["rounds"]
        on = whole["machine"]
    return results, on
