"""The form of the benchmark: cases, whose runs take turns, and the rows that are told of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .peers import OURS


@dataclass(frozen=True)
class Row:
    """One figure of one run of a case, and its floor, if it has one.

    With `against`, the name of another run, the ratio of the two is what `at_least` bounds; it is
    always the better the higher. Without, `at_least` bounds the figure itself, as `at_most` always
    does. `beside` names another case whose first ratio is of interest here.
    """

    figure: str
    run: str = OURS
    against: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    beside: str | None = None


@dataclass(frozen=True)
class Case:
    """Runs that take turns, by name, and the rows that are told of them. `once`: a single round."""

    name: str
    group: str
    runs: Mapping[str, Any]
    rows: tuple[Row, ...]
    once: bool = False
