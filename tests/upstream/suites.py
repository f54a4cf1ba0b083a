"""Google's own suites: their places in a source tree, and cases that need more than a broker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM = "tests/system.py"
SAMPLES = "samples/snippets"

# The possible places of the package in a tree: the tree itself, its folders (two sources unpacked
# into one folder), and its path in the repository of all Google Cloud packages.
ROOTS = ("", "*", "packages/google-cloud-pubsub", "*/packages/google-cloud-pubsub")


@dataclass(frozen=True)
class Suite:
    """One file of tests, run unchanged.

    `beyond` has the cases that no broker can pass: a pattern of their ids, and the reason.
    """

    name: str
    file: str
    beyond: Mapping[str, str] = field(default_factory=dict)

    def reason(self, case: str) -> str | None:
        """Return the reason why that case is not run, or None if it is."""
        return next((why for pattern, why in self.beyond.items() if re.search(pattern, case)), None)


@dataclass(frozen=True)
class Found:
    """A suite, and its file in a source tree."""

    suite: Suite
    path: Path


SUITES: Sequence[Suite] = (
    Suite(
        "system",
        SYSTEM,
        {r"\brest\b": "the client of 2.44.0 cannot speak REST to PUBSUB_EMULATOR_HOST"},
    ),
    Suite("publisher", f"{SAMPLES}/publisher_test.py"),
    Suite(
        "subscriber",
        f"{SAMPLES}/subscriber_test.py",
        {"bigquery": "needs BigQuery", "cloudstorage": "needs Cloud Storage"},
    ),
    Suite("schema", f"{SAMPLES}/schema_test.py"),
    Suite("iam", f"{SAMPLES}/iam_test.py"),
    Suite("quickstart", f"{SAMPLES}/quickstart/quickstart_test.py"),
)


def find(upstream: Path) -> list[Found]:
    """Return the suites that are under `upstream`, in the order above."""
    return [
        Found(suite, path)
        for suite in SUITES
        if (path := next(_candidates(upstream, suite.file), None)) is not None
    ]


def _candidates(upstream: Path, file: str) -> Iterator[Path]:
    for root in ROOTS:
        for package in sorted(upstream.glob(root)) if root else [upstream]:
            # Other packages of Google's have a tests/system.py too.
            if (package / "google" / "pubsub_v1").is_dir() and (package / file).is_file():
                yield package / file
