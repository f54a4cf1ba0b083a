"""The pages on Spark list all options, quote existing errors, and belong to the site."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

if tuple(sys.version_info) < (3, 11):
    pytest.skip("pullstream.spark needs Python 3.11", allow_module_level=True)

import click

from pullstream.cli.ingest import ingest
from pullstream.spark.datasource.options import batch_option_names, stream_option_names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text("utf-8")


def section(name: str, title: str) -> str:
    """Return the text below a heading of a page, up to the next."""
    found = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", page(name), re.M | re.S)
    assert found is not None
    return found[1]


def first_cells(text: str) -> list[str]:
    """Return the texts in backticks of the first column of all tables."""
    rows = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall("`([^`]+)`", row)]


def test_the_spark_pipelines_page_lists_every_option_of_a_streaming_read() -> None:
    """Each option has a row, and two related options may share one."""
    found = first_cells(section("spark-pipelines", "Options"))
    assert sorted(found) == sorted(stream_option_names())


def test_the_spark_pipelines_page_lists_every_option_of_a_batch_read() -> None:
    """The section about the batch read has the options that a stream does not have."""
    text = section("spark-pipelines", "A batch read")
    own = batch_option_names() - stream_option_names()
    assert {name for name in own if f"`{name}`" in text} == own


def test_the_spark_tables_page_lists_every_option_of_the_ingest_command() -> None:
    """Each option of the command has a row, and no other option has one."""
    found = [text.split()[0] for text in first_cells(section("spark-tables", "Options"))]
    options = {
        name
        for each in ingest.params
        if isinstance(each, click.Option)
        for name in each.opts
        if name.startswith("--")
    }
    connection = {"--token", "--token-file", "--ca", "--cert", "--key"}
    of_all_commands = {"--help", "--project", "--endpoint", "--json", *connection}
    assert len(found) == len(set(found))
    assert options - of_all_commands <= set(found)
    assert set(found) <= options


def test_every_error_that_the_spark_runbook_quotes_is_a_text_of_the_code() -> None:
    """Each text in the first column is in one string of the code, without inserted values."""
    texts = [
        re.sub(r"\s+", " ", node.value)
        for path in (ROOT / "subscriber" / "pullstream" / "spark").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    quoted = [
        text
        for title in ("Errors of the job", "Errors of the source")
        for text in first_cells(section("spark-runbook", title))
    ]
    assert len(quoted) > 20
    assert [one for one in quoted if not any(one in text for text in texts)] == []


def test_every_page_on_spark_is_in_the_table_of_contents_of_the_entry_page() -> None:
    """The entry lists each page in its table and in the tree of the site."""
    entry = page("spark")
    tree = re.search(r"```\{toctree\}(.*?)```", entry, re.DOTALL)
    assert tree is not None
    listed = re.findall(r"^(spark-[a-z]+)$", tree[1], re.MULTILINE)
    assert {path.stem for path in DOCS.glob("spark-*.md")} <= set(listed)
    assert re.findall(r"\]\((spark-[a-z]+)\.md\)", entry) == listed
