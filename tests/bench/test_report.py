"""The table, the page, and the picture of the results."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench import run
from tests.bench.cases import CASES
from tests.bench.picture import Bar, Scale, bars, draw
from tests.bench.report import (
    BLOCK,
    Results,
    markdown_tables,
    read_json,
    write_docs,
    write_json,
)
from tests.written_block import comments

BEGIN, END = comments(BLOCK)
SVG = "{http://www.w3.org/2000/svg}"


def results(ratio: float) -> Results:
    """Return results of all cases with ours this many times better than each peer."""
    figures = [outcome for case in CASES for outcome in case.rows]
    less = {row.figure for row in figures} - {"rate", "megabytes"}

    def round_of(value: float) -> dict[str, float]:
        return {"rate": value, "megabytes": value} | dict.fromkeys(less, 1 / value)

    return {
        case.name: {
            name: [round_of(100.0 * (ratio if name == case.rows[0].run else 1.0))]
            for name in case.runs
        }
        for case in CASES
    }


def test_writing_benchmark_results_replaces_the_table_of_a_page_and_keeps_its_prose(
    tmp_path: Path,
) -> None:
    """Writing twice leaves one table."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    for ratio in (15.0, 30.0):
        write_docs(page, CASES, results(ratio), {"cores": "2"})
    text = page.read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n### Receiving\n\n| case |")
    assert text.endswith(f"Measured on: cores 2.\n{END}\n\nafter\n")
    assert "30.0 x" in text
    assert "15.0 x" not in text


def test_writing_results_to_a_page_without_benchmark_table_comments_fails(tmp_path: Path) -> None:
    """An unchanged page would hide the problem."""
    page = tmp_path / "page.md"
    page.write_text("nothing here")
    with pytest.raises(SystemExit, match="must have one"):
        write_docs(page, CASES, results(15), {})


def test_the_benchmark_table_of_the_page_in_docs_can_be_replaced() -> None:
    """The page has each of the two comments once."""
    text = run.PAGE.read_text(encoding="utf-8")
    assert (text.count(BEGIN), text.count(END)) == (1, 1)


def test_a_missed_benchmark_floor_is_marked_in_the_result_table() -> None:
    """The mark is a word because the page has no colours."""
    (line,) = (
        line
        for line in markdown_tables(CASES, results(15)).splitlines()
        if line.startswith("| 10 per response, 20 ms latency |")
    )
    assert "| 15.0 x | ≥ 50 x **missed** |" in line


def test_with_the_check_option_the_benchmark_report_exits_with_an_error_for_missed_floors(
    tmp_path: Path,
) -> None:
    """Stored results can be shown and judged again without measuring."""
    for ratio, status in ((1.0, 1), (1000.0, 0)):
        kept = tmp_path / "kept.json"
        write_json(kept, CASES, results(ratio), {})
        named = ["--read", str(kept), "--case", "1 per response"]
        assert run.main([*named, "--check"]) == status
        assert run.main(named) == 0


def test_a_case_that_was_measured_again_replaces_its_earlier_figures(tmp_path: Path) -> None:
    """The other cases keep theirs."""
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    write_json(first, CASES, results(1.0), {"cores": "1"})
    names = [case.name for case in CASES]
    better = {names[0]: results(1000.0)[names[0]]}
    write_json(again, CASES[:1], better, {"cores": "2"})
    merged, on = read_json([first, again])
    assert merged == results(1.0) | better
    assert (list(merged), on) == (names, {"cores": "2"})


def test_each_group_of_benchmark_cases_has_one_table_without_empty_columns() -> None:
    """A group in two places of the list would have two headings."""
    text = markdown_tables(CASES, results(15))
    headings = [line for line in text.splitlines() if line.startswith("### ")]
    assert len(headings) == len(set(headings))
    assert [heading.removeprefix("### ").lower() for heading in headings] == list(
        dict.fromkeys(case.group.lower() for case in CASES)
    )
    for table in text.split("### ")[1:]:
        rows = [line.split("|")[1:-1] for line in table.splitlines()[4:] if line]
        assert all(any(cell.strip() for cell in column) for column in zip(*rows, strict=True))


def test_the_benchmark_program_exits_with_an_error_for_an_unknown_case_name() -> None:
    """Otherwise an empty measurement would look like success."""
    assert run.main(["--case", "no such case", "--check"]) == 2


def test_the_benchmark_chart_shows_every_ratio_with_a_floor() -> None:
    """Each ratio has one bar, one tick and one value, and a missed one has another colour."""
    shown = bars(CASES, results(15))
    tree = ElementTree.fromstring(draw(CASES, results(15)))

    def count(kind: str) -> int:
        return sum(one.get("class") == kind for one in tree.iter())

    # The legend has one of each.
    missed = [bar.label for bar in shown if not bar.met]
    assert missed == [
        "10 per response, 20 ms latency",
        "exactly once, 10 per response, 20 ms",
        "whole stack",
    ]
    assert count("bar") == len(shown) - len(missed) + 1
    assert count("bar missed") == len(missed) + 1
    assert count("floor") == len(shown) + 1
    values = [one.text for one in tree.iter(f"{SVG}text") if one.get("class") == "value"]
    assert values == ["15.0"] * len(shown)


def test_the_benchmark_chart_draws_its_own_background_over_the_whole_picture() -> None:
    """A page may be dark while the system is light, so dark text would be on black."""
    tree = ElementTree.fromstring(draw(CASES, results(15)))
    first = next(one for one in tree if one.tag in (f"{SVG}rect", f"{SVG}text"))
    assert (first.get("class"), first.get("width"), first.get("height")) == (
        "ground",
        "100%",
        "100%",
    )


def test_the_axis_of_the_benchmark_chart_is_logarithmic() -> None:
    """The axis is logarithmic, and the largest value is inside the picture."""
    scale = Scale.over([Bar("", "", 200.0, 10.0, True)])
    assert scale.x(10) - scale.x(1) == pytest.approx(scale.x(100) - scale.x(10))
    assert scale.x(1) < scale.x(200) < 800


def test_a_bar_of_the_benchmark_chart_with_a_ratio_below_one_extends_to_the_left() -> None:
    """Figures below the official client's are visible as such."""
    slow = draw(CASES, results(0.5))
    one = re.search(r'class="one" d="M([\d.]+),', slow)
    assert one is not None
    found = re.findall(r'class="bar missed" x="([\d.]+)" y="[^"]+" width="([\d.]+)"', slow)
    # The first is the legend's.
    assert len(found) == len(bars(CASES, results(0.5))) + 1
    for x, width in found[1:]:
        assert float(x) + float(width) == pytest.approx(float(one[1]), abs=0.2)


def test_drawing_a_benchmark_chart_without_results_raises_a_value_error() -> None:
    """The docs must not get an empty picture."""
    with pytest.raises(ValueError, match="no ratio"):
        draw([], {})
