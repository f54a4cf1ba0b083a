"""docs/spark.md lists all options of the source and no others."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if tuple(sys.version_info) < (3, 11):
    pytest.skip("pullstream.spark needs Python 3.11", allow_module_level=True)

from pullstream.spark.datasource.options import batch_option_names, stream_option_names

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


def section(title: str) -> str:
    """Return the text below a heading, up to the next."""
    found = re.search(rf"^## {title}$(.*?)(?=^## )", GUIDE.read_text("utf-8"), re.M | re.S)
    assert found is not None
    return found[1]


def test_the_spark_guide_lists_every_option_of_a_streaming_read() -> None:
    """Each option has a row, and two related options may share one."""
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section("Options"), re.M)
    names = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(names) == sorted(stream_option_names())


def test_the_spark_guide_lists_every_option_of_a_batch_read() -> None:
    """The section about the batch read has the options that a stream does not have."""
    text = section("A batch read")
    own = batch_option_names() - stream_option_names()
    assert {name for name in own if f"`{name}`" in text} == own
