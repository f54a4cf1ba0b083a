"""Mutants of a module: the changed tokens and the excluded parts."""

from __future__ import annotations

import ast
import sys
import textwrap

import pytest

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import mutants
from tests.mutants.run import PACKAGE, SUITES, TESTS, trials


def changes(source: str) -> list[tuple[str, str]]:
    """Return each changed line, before and after the change."""
    return [(mutant.before, mutant.after) for mutant in mutants(textwrap.dedent(source))]


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a + b * c", ["x = a - b * c", "x = a + b / c"]),
        ("x = a and not b", ["x = a or not b", "x = a and b"]),
        ("x = a is not b", ["x = a is b"]),
        ("x = a is b", ["x = a is not b"]),
        ("x = a in b", ["x = a not in b"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = min(a, 2)", ["x = max(a, 2)", "x = min(a, 2 + 1)"]),
        ("x = True", ["x = False"]),
        ("x = f(*a)", []),
        ("x += a", ["pass", "x -= a"]),
        ("x.y = a", ["pass"]),
        ("f(a)", ["pass"]),
        ("for x in a: f(x)", ["for x in a: pass"]),
        ("x = [y for y in a]", []),
        ("import x, y", []),
        ('"""A + b."""', []),
        ("x: int | None = a", []),
    ],
)
def test_the_mutation_tool_creates_the_expected_mutants_for_each_kind_of_token(
    line: str, after: list[str]
) -> None:
    assert changes(line) == [(line, each) for each in after]


def test_the_mutation_tool_changes_no_annotations_decorators_and_docstrings() -> None:
    source = '''
        @decorator(1 + 2)
        def f(x: int | None, *, y: bool = True) -> int | None:
            """Return 1 + 2."""
            return x
    '''
    before = "def f(x: int | None, *, y: bool = True) -> int | None:"
    assert changes(source) == [(before, before.replace("True", "False"))]


def test_the_mutation_tool_replaces_a_member_of_an_enum_by_another_member() -> None:
    source = """
        class Light(Enum):
            RED = "red"
            GREEN = "green"

        x = Light.GREEN
    """
    assert changes(source) == [("x = Light.GREEN", "x = Light.RED")]


def test_a_mutant_differs_from_the_source_in_one_line_only() -> None:
    (mutant,) = mutants("a = b\n\nif c:\n    d(e)\n")
    assert mutant.source == "a = b\n\nif c:\n    pass\n"
    assert (mutant.line, mutant.before, mutant.after) == (4, "d(e)", "pass")


@pytest.mark.parametrize("module", SUITES)
def test_all_mutants_of_each_tested_module_can_be_compiled(module: str) -> None:
    assert all((TESTS / name).exists() for name in SUITES[module])
    for mutant in mutants((PACKAGE / module).read_text("ascii")):
        ast.parse(mutant.source)


def test_the_seed_of_a_mutation_run_determines_which_mutants_are_tried() -> None:
    module = "streaming/failed_key.py"
    first, again, other = (trials([module], seed, 10) for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 10


def test_mutants_listed_as_equivalent_exist_and_are_not_tried() -> None:
    existing = {
        (module, mutant.before, mutant.after)
        for module in SUITES
        for mutant in mutants((PACKAGE / module).read_text("ascii"))
    }
    assert set(EQUIVALENT) <= existing
    tried = trials(list(SUITES), 0, sys.maxsize)
    assert not {(one.module, one.mutant.before, one.mutant.after) for one in tried} & set(
        EQUIVALENT
    )
