"""The structure of the benchmark: cases with alternating runs, and the rows of the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .peers import OURS


@dataclass(frozen=True)
class Row:
    """One figure of one run of a case, and its floor, if it has one.

    With `against`, the name of another run, `at_least` bounds the ratio of the two, for which
    higher is always better. Without it, `at_least` bounds the figure itself, as `at_most` always
    does. `compare` names another case whose first ratio is shown, too. A `detail` is left out of
    the documentation unless its floor is missed.
    """

    figure: str
    run: str = OURS
    against: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    compare: str | None = None
    detail: bool = False


@dataclass(frozen=True)
class Case:
    """Alternating runs by name, and their rows in the report. `once` means a single round."""

    name: str
    group: str
    runs: Mapping[str, Any]
    rows: tuple[Row, ...]
    once: bool = False
