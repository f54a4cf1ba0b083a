"""The options of Java for tests, and the archive of Spark's classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import quick_java as module
from tests.quick_java import QUICK_JAVA, quick_java


@pytest.mark.parametrize(
    ("folder", "is_used"), [("archive", True), ("with a space", False), (None, False)]
)
def test_tests_start_java_with_the_archive_of_sparks_classes_where_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None, is_used: bool
) -> None:
    """Spark separates the options by spaces, so a path with one cannot be used."""
    archive = tmp_path / (folder or "archive") / "spark-classes.jsa"
    if folder:
        archive.parent.mkdir()
        archive.touch()
    monkeypatch.setattr(module, "ARCHIVE", archive)
    used = f"{QUICK_JAVA} -XX:SharedArchiveFile={archive} -Xlog:cds*=off"
    assert quick_java() == (used if is_used else QUICK_JAVA)
