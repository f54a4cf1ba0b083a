"""Every name in backticks exists: in the Markdown files, and in docstrings and comments.

A text in backticks is checked if it has one of these forms:

- A path, `wire.py`: a file of the repository ends with it.
- An option, `--recover`: a program or a Makefile of the repository has it.
- An identifier with an underscore or with capitals inside, `max_messages`, `KeyQueue`, and each
  part of a dotted name or of a call, `future.close()`: it is an identifier or a word of a string in
  the code, in a .proto or a .js file, or it belongs to Python.
- A member of one of our classes, `Backlog.settle`: the class or a base defines it.

Other texts are ordinary words, literals, or parts of programs.
"""

from __future__ import annotations

import ast
import builtins
import io
import itertools
import keyword
import re
import sys
import token
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.completed import run_command

# So one process runs these tests, and reads the repository once, which takes ten seconds.
pytestmark = pytest.mark.xdist_group("documented names")

ROOT = Path(__file__).parents[2]
SUFFIXES = ("py", "md", "proto", "toml", "js", "svg")

WORD = re.compile(r"[A-Za-z_]\w*")
DOTTED = re.compile(r"@?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\))?")
PATH = re.compile(rf"(?:[\w-]+/)*[\w-]+\.(?:{'|'.join(SUFFIXES)})")
OPTION = re.compile(r"(--[a-z][a-z-]+)(?:[= ].*)?")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
ARGS = re.compile(r"^Args:\n((?:(?:    .*)?\n)*)", re.MULTILINE)
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)

# Names of other programs, packages and examples, and parts of names.
FOREIGN = frozenset(
    {
        # gRPC and google-auth
        *("too_many_pings", "maximum_concurrent_rpcs", "experimental", "init_gevent"),
        *("gevent", "monkey", "patch_all", "id_token", "verify_oauth2_token"),
        # google-cloud-pubsub, and the path of its system tests
        *("SubscriberOptions", "SubscriberAsyncClient", "opentelemetry_data", "to_dict"),
        *("activate_ordering_keys", "tests/system.py"),
        # Spark, Java and Beam
        *("maxSize", "dropDuplicates", "_spark_metadata", "asyncProgressTrackingEnabled"),
        *("StackOverflowError", "PubsubIO", "read_pubsub", "spark_catalog", "extraClassPath"),
        *("txnAppId", "txnVersion"),
        # object stores, Kubernetes
        *("aws_allow_http", "ReadWriteOncePod"),
        # placeholders, parts of names, and files that a reader writes
        *(
            "at_day",
            "at_hour",
            "DOMAIN",
            "TABLE_deadletter",
            "TABLE_batches",
            "_deadletter",
            "_with_response",
        ),
        *("billing.py", "test_billing.py"),
    }
)


@dataclass
class Source:
    """The names that one Python file defines, and its texts for people.

    Attributes:
        names: The identifiers in its code, and the words of its strings except docstrings.
        prose: Its docstrings and comments, each with its line.
    """

    names: set[str] = field(default_factory=set)
    prose: list[tuple[int, str]] = field(default_factory=list)


def files(*patterns: str) -> list[Path]:
    """Return the files of the repository that match some patterns of git."""
    listed = run_command(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns], cwd=ROOT
    ).stdout.splitlines()
    if not listed:
        pytest.skip("the files are not in a git checkout")
    return [path for name in listed if (path := ROOT / name).is_file()]


def read(path: Path) -> Source:
    """Split a Python file into names and prose."""
    source = Source()
    before = token.NEWLINE
    comment: list[str] = []
    comment_line = 0
    for each in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if each.type == token.COMMENT:
            comment_line = comment_line or each.start[0]
            comment.append(each.string.lstrip("#: "))
            continue
        if each.type == token.NL:
            continue
        if comment:
            source.prose.append((comment_line, "\n".join(comment)))
            comment, comment_line = [], 0
        if each.type == token.NAME:
            source.names.add(each.string)
        elif each.type in (token.STRING, getattr(token, "FSTRING_MIDDLE", token.STRING)):
            if before in (token.NEWLINE, token.INDENT, token.DEDENT) and '"""' in each.string:
                source.prose.append((each.start[0], each.string))
            else:
                source.names.update(WORD.findall(each.string))
        before = each.type
    return source


@cache
def sources() -> dict[Path, Source]:
    return {path: read(path) for path in files("*.py") if not path.stem.endswith("_pb2")}


@cache
def known_names() -> frozenset[str]:
    """Return every name that the repository's code or Python itself has."""
    names = set(FOREIGN).union(*(source.names for source in sources().values()))
    for path in files("*.proto", "*.js", "*.pyi", "*.toml", "*.yaml", "*.yml", "Makefile", ".ci/*"):
        text = re.sub(r"^\s*(//|#).*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        names.update(WORD.findall(text))
    names.update(path.stem for path in files("*.py"))
    names.update(part for path in files("*.py") for part in path.relative_to(ROOT).parts[:-1])
    names.update(dir(builtins), keyword.kwlist, sys.stdlib_module_names)
    for module in list(sys.modules.values()):
        if module.__name__.partition(".")[0] in sys.stdlib_module_names:
            names.update(vars(module))
    return frozenset(names)


@cache
def members() -> dict[str, set[str] | None]:
    """Return the members of each of our classes. None stands for a base of another package.

    Classes of one name are taken together.
    """
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] |= {
                    WORD.findall(ast.unparse(base).partition("[")[0])[-1] for base in node.bases
                }
                own[node.name] |= set(_defined(node))
    plain = {"object", "Protocol", "Generic", "ABC", "NamedTuple", "Enum", "Exception"}

    def all_of(name: str, seen: frozenset[str]) -> set[str] | None:
        found = set(own[name])
        for base in bases[name] - plain - seen:
            inherited = all_of(base, seen | {name}) if base in own else None
            if inherited is None:
                return None
            found |= inherited
        return found

    messages = {
        name for path in files("*.proto") for name in WORD.findall(path.read_text(encoding="utf-8"))
    }
    return {name: None if name in messages else all_of(name, frozenset()) for name in list(own)}


def _defined(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.Name | ast.arg):
            yield each.id if isinstance(each, ast.Name) else each.arg
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def unknown(text: str) -> str | None:
    """Return what is wrong with a text in backticks, if it is one that can be checked."""
    if PATH.fullmatch(text):
        return None if f"/{text}" in paths() or text in FOREIGN else "no such file"
    if option := OPTION.fullmatch(text):
        return None if option[1] in options() else "no such option"
    dotted = DOTTED.fullmatch(text)
    if not dotted:
        return None
    parts = dotted[1].split(".")
    for owner, member in itertools.pairwise(parts):
        has = members().get(owner)
        if has is not None and member not in has and member not in FOREIGN:
            return f"{owner} has no {member}"
    checked = parts if len(parts) > 1 or "(" in text else [p for p in parts if _is_name(p)]
    missing = [part for part in checked if not _is_known(part)]
    return f"no {', '.join(missing)}" if missing else None


def _is_known(name: str) -> bool:
    if name in known_names():
        return True
    # Names of metrics are put together from words.
    return name.startswith("pullstream_") and known_names().issuperset(name.split("_"))


@cache
def paths() -> frozenset[str]:
    """Return the ends of all paths of the repository, each with a slash before it."""
    found = set()
    for path in files():
        parts = path.relative_to(ROOT).parts
        found |= {"/" + "/".join(parts[first:]) for first in range(len(parts))}
    return frozenset(found)


def _is_name(word: str) -> bool:
    return bool(re.search(r"[a-z]_|_[a-z]|[a-z][A-Z]", word))


@cache
def options() -> frozenset[str]:
    """Return every option that occurs in the code."""
    found = set()
    for path in files("*.py", "Makefile", ".ci/*", "*.toml", "*.yaml", "*.yml", "Containerfile"):
        found |= set(re.findall(r"--[a-z][a-z-]+", path.read_text(encoding="utf-8")))
    return frozenset(found)


def texts() -> Iterator[tuple[str, str]]:
    """Yield each text in backticks with its place."""
    for path in files("*.md"):
        text = path.read_text(encoding="utf-8")
        prose = FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
        for found in CODE.finditer(prose):
            yield f"{path.relative_to(ROOT)}:{prose.count(chr(10), 0, found.start()) + 1}", found[1]
    for path, source in sources().items():
        for line, prose in source.prose:
            for found in CODE.finditer(prose):
                number = line + prose.count("\n", 0, found.start())
                yield f"{path.relative_to(ROOT)}:{number}", found[1]


def test_every_name_in_backticks_in_the_documentation_exists_in_the_code() -> None:
    """Rename it in the text, too, or add the name of another program to FOREIGN."""
    stale = [
        f"{place}: `{text}`: {problem}"
        for place, text in texts()
        if (problem := unknown(text)) is not None
    ]
    assert not stale, "\n".join(stale)


@pytest.mark.parametrize(
    "text",
    [
        # In two parts, because the words of a string are known names.
        "max_" + "messengers",
        "future." + "finish_" + "soon(timeout)",
        "Backlog." + "close",
        "--no-" + "such-option",
        "tests/docs/" + "other.py",
    ],
)
def test_the_check_of_names_in_the_documentation_detects_a_name_that_does_not_exist(
    text: str,
) -> None:
    assert unknown(text) is not None


def parameters(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that the section Args of a docstring may have."""
    if isinstance(node, ast.ClassDef):
        found = {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                found |= parameters(each)
        return found
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    every += [each for each in (node.args.vararg, node.args.kwarg) if each]
    return {each.arg for each in every}


def test_every_argument_described_in_a_docstring_is_a_parameter_of_the_function() -> None:
    """The sections Args are checked."""
    stale = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                section = ARGS.search(ast.get_docstring(node) or "")
                described = (
                    re.findall(r"^    \*{0,2}(\w+)(?: \(.*\))?:", section[1], re.M)
                    if section
                    else []
                )
                stale += [
                    f"{path.relative_to(ROOT)}: {node.name}: {name}"
                    for name in described
                    if name not in parameters(node)
                ]
    assert not stale, "\n".join(stale)


def test_every_internal_term_of_the_glossary_occurs_in_a_name_of_the_code() -> None:
    """The term due queue, for example, is the name DueQueue."""
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| (.+?) † \|", glossary, re.MULTILINE)
    product = {
        name
        for path, source in sources().items()
        if path.relative_to(ROOT).parts[0] in ("protocol", "subscriber", "emulator")
        for name in source.names
    }
    words = {re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower().strip() for name in product}
    assert terms
    assert [term for term in terms if not any(f" {term} " in f" {name} " for name in words)] == []
