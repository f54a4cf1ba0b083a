"""The results of a suite's cases, read from pytest's report."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """The outcome of one suite.

    Attributes:
        failed: One line of the error of each failed case.
        skipped: The number of cases that skipped themselves, by reason.
        beyond: The number of cases that were not run, by reason.
    """

    passed: int
    failed: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    beyond: Mapping[str, int] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        return self.passed + len(self.failed)


def read_report(report: Path, beyond: Mapping[str, int]) -> Outcome:
    """Return the outcome of a run with `--junit-xml=report`."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = case.get("name", "")
        # A failure of a fixture's end is reported apart, so a case may have both passed and failed.
        if (fault := _child(case, "failure", "error")) is not None:
            failed[name] = _first_line(fault.get("message", ""))
        elif (skip := _child(case, "skipped")) is not None:
            skipped[name] = _first_line(skip.get("message", ""))
        else:
            passed.add(name)
    return Outcome(len(passed - failed.keys()), failed, Counter(skipped.values()), beyond)


def _child(case: ElementTree.Element, *tags: str) -> ElementTree.Element | None:
    return next((child for child in case if child.tag in tags), None)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
