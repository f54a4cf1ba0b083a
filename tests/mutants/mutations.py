"""Single-token mutants of a module: copies with one small mistake each."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

# Token, and the token that replaces it.
SWAPS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "|": "&",
    "&": "|",
    "+=": "-=",
    "-=": "+=",
    "and": "or",
    "or": "and",
    "True": "False",
    "False": "True",
    "min": "max",
    "max": "min",
    "break": "continue",
    "continue": "break",
}

_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one mistake.

    Attributes:
        line: Number of the changed line.
        before: The changed line of the original, without its indentation.
        after: The same line of the mutant.
        source: Text of the mutant.
    """

    line: int
    before: str
    after: str
    source: str


def mutants(source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of their lines.

    They change an operator, a number, a truth value, `min`, `max`, `in`, `is`, `not` or a member of
    an enum, or replace a statement on one line by `pass`. Imports, annotations, decorators and
    docstrings stay.
    """
    tree = ast.parse(source)
    skipped = [_span(node) for node in _skipped(tree)]
    edits = [*_tokens(source, _loops(tree)), *_statements(tree), *_members(tree)]
    lines = source.splitlines(keepends=True)
    found = []
    for (line, start), end, text in sorted(edits):
        if any(first <= (line, start) < last for first, last in skipped):
            continue
        old = lines[line - 1]
        # Offsets of the parser and the tokenizer agree, because the sources are ASCII.
        new = old[:start] + text + old[end:]
        changed = "".join([*lines[: line - 1], new, *lines[line:]])
        found.append(Mutant(line, old.strip(), new.strip(), changed))
    return found


def _tokens(source: str, loops: set[_Place]) -> Iterator[tuple[_Place, int, str]]:
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        start, end = token.start, token.end[1]
        text = token.string
        if token.type == tokenize.NUMBER:
            yield start, end, f"{text} + 1"
        elif token.type not in (tokenize.OP, tokenize.NAME):
            continue
        elif text == "*" and before.string in "([,":
            # No product, but several arguments.
            continue
        elif text in SWAPS:
            yield start, end, SWAPS[text]
        elif text == "is":
            # `is not` becomes `is`.
            is_negative = after.string == "not"
            yield start, after.end[1] if is_negative else end, "is" if is_negative else "is not"
        elif text == "in" and before.string != "not" and start not in loops:
            yield start, end, "not in"
        elif text == "not" and before.string != "is":
            yield start, after.start[1], ""


def _statements(tree: ast.AST) -> Iterator[tuple[_Place, int, str]]:
    """Yield the removals of statements. A local name stays: its removal fails in every use."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Delete)):
            continue
        is_local = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        is_value = isinstance(node, ast.Return) and node.value is not None
        if node.lineno == node.end_lineno and not (is_local or is_value):
            yield (node.lineno, node.col_offset), node.end_col_offset or 0, "pass"


def _members(tree: ast.Module) -> Iterator[tuple[_Place, int, str]]:
    """Yield the swaps of a member of an enum in this module by the next one."""
    members = {
        node.name: [
            one.targets[0].id
            for one in node.body
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
        ]
        for node in tree.body
        if isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] == ["Enum"]
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = members.get(node.value.id, [])
            if node.attr in names:
                other = names[(names.index(node.attr) + 1) % len(names)]
                place = node.lineno, node.col_offset
                yield place, node.end_col_offset or 0, f"{node.value.id}.{other}"


def _skipped(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from node.decorator_list
            if not isinstance(node, ast.ClassDef) and node.returns is not None:
                yield node.returns


def _span(node: ast.AST) -> tuple[_Place, _Place]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def _loops(tree: ast.AST) -> set[_Place]:
    """Return the positions of `in` in loops, where it is no comparison."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            end = node.target.end_col_offset
            assert end is not None
            found.add((node.target.end_lineno or 0, end + 1))
    return found
