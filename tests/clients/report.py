"""The table of all runs: our broker beside Google's emulator, with the floors. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from .events import FIGURES, Figures
from .scenarios import SCENARIOS, floors

OURS, GOOGLE = "ours", "google"


@dataclass(frozen=True)
class Run:
    """One run, and its figures by the names of `FIGURES`."""

    scenario: str
    client: str
    broker: str
    busy: int
    figures: Figures

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def missed(self) -> list[str]:
        """Return the figures with which our broker misses a floor, in words."""
        if self.broker != OURS:
            return []
        return [
            f"{self.client}/{self.scenario}: {self.figures[name]:.4g} {FIGURES[name]}, "
            f"at most {most:.4g}"
            for name, most in floors(self.client, SCENARIOS[self.scenario]).items()
            if self.figures.get(name, most) > most
        ]


def table(runs: Sequence[Run]) -> Table:
    """Return each figure that is not 0 for one of the brokers."""
    view = Table("scenario", "client", "figure", "ours", "Google's", "floor", "")
    for column in view.columns[3:6]:
        column.justify = "right"
    view.columns[2].no_wrap = True
    pairs = dict.fromkeys((run.scenario, run.client) for run in runs)
    for scenario, client in sorted(pairs, key=lambda pair: (list(SCENARIOS).index(pair[0]), pair)):
        of_pair = [run for run in runs if (run.scenario, run.client) == (scenario, client)]
        limits = floors(client, SCENARIOS[scenario])
        for name, description in FIGURES.items():
            ours = figures_of(of_pair, OURS, name)
            google = figures_of(of_pair, GOOGLE, name)
            if not any([*ours, *google]):
                continue
            floor, verdict = "", ""
            if name in limits:
                floor = f"{limits[name]:.4g}"
                verdict = "" if not ours else "ok" if max(ours) <= limits[name] else "MISSED"
            view.add_row(
                scenario, client, description, spread(ours), spread(google), floor, verdict
            )
        view.add_section()
    return view


def figures_of(runs: Iterable[Run], broker: str, name: str) -> list[float]:
    return [run.figures[name] for run in runs if run.broker == broker and name in run.figures]


def spread(values: Sequence[float]) -> str:
    """Return the smallest value, the median and the largest one, or one number if all are equal."""
    if not values:
        return "-"
    numbers = [
        f"{value:.1f}".removesuffix(".0")
        for value in (min(values), statistics.median(values), max(values))
    ]
    return numbers[0] if len(set(numbers)) == 1 else " / ".join(numbers)
