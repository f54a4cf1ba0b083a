"""The table of tested versions in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_matrix.report import BLOCK, PAGE, Check, write_docs, written_checks
from tests.written_block import comments

BEGIN, END = comments(BLOCK)


def lines_of_block(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    return text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()


@pytest.mark.parametrize(
    ("format", "reader"),
    [
        ("delta", "PySpark 4.2.1, io.delta:delta-spark_4.2_2.13:"),
        ("iceberg", "PySpark 4.1.4, org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:"),
        ("parquet", "PySpark 4.2.1"),
    ],
)
def test_the_documentation_has_the_tested_versions_of_each_format(format: str, reader: str) -> None:
    """Tables that are written directly and by jobs are read with the format's own jar."""
    rows = [line for line in lines_of_block(PAGE) if line.startswith(f"| {format} | ")]
    assert any("pullstream ingest" in row for row in rows)
    assert any("| a table |" in row for row in rows)
    assert all(f" | {reader}" in row for row in rows)


def test_writing_the_tested_versions_replaces_the_old_ones_and_keeps_the_prose(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    for result in ("first", "second"):
        checks = [Check("delta", "a table", "deltalake 1", "PySpark 4.2.1", result, True)]
        write_docs(page, checks, "Tested on 2026-03-02")
    text = page.read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n| format |")
    assert text.endswith(f"\n\nTested on 2026-03-02.\n{END}\n\nafter\n")
    assert "| delta | a table | deltalake 1 | PySpark 4.2.1 | second |" in text
    assert "first" not in text


def test_the_lines_of_a_table_are_read_again_so_that_others_are_added(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"| a | table |\n\n{BEGIN}\n{END}\n")
    old = [
        Check("parquet", "a table", "pyarrow 1", "PySpark 4.2.1", "every row once", True),
        Check("", "the calls", "PySpark 4.2.1", "", "as recorded", True),
    ]
    write_docs(page, old, "Tested")
    assert written_checks(page) == old
    new = Check("delta", "a table", "deltalake 1", "PySpark 4.2.1", "every row once", True)
    write_docs(page, [*written_checks(page), new], "Tested")
    assert written_checks(page) == [new, *old]
