"""Finds words in identifiers for which the code has a better name; part of `make check`.

The glossary has the terms. Words that are also ordinary English, such as `place`, are allowed.
"""

from __future__ import annotations

import io
import keyword
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

# Each forbidden word, and what to write instead.
FORBIDDEN = {
    "lane": "key queue, or the kind of an outbox's requests",
    "intake": "message buffer",
    "head_start": "reply first",
    "out_of_turn": "ordered ack retry",
    "look_again": "check again, or poll",
    "fate": "decision, or outcome",
    "hurry": "close quickly, or without retries",
    "patience": "timeout",
}

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FORBIDDEN = re.compile(rf"(?:^|_)({'|'.join(FORBIDDEN)})s?(?:_|$)")
_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Finding(NamedTuple):
    """An identifier with a forbidden word, and its line."""

    line: int
    identifier: str
    word: str


def forbidden_word(identifier: str) -> str | None:
    """Return the forbidden word in an identifier of any style; None if there is none."""
    words = "_".join(_WORD.findall(identifier)).lower()
    match = _FORBIDDEN.search(words)
    return None if match is None else match[1]


def in_python(text: str, first_line: int = 1) -> Iterator[Finding]:
    """Yield the findings in Python code, up to its first syntax error."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.NAME or keyword.iskeyword(token.string):
                continue
            if word := forbidden_word(token.string):
                yield Finding(first_line + token.start[0] - 1, token.string, word)
    except (tokenize.TokenError, IndentationError):
        # Documentation also has parts of programs.
        return


def in_file(path: Path) -> Iterator[Finding]:
    """Yield the findings in a Python file, its name included, or in the code of a Markdown file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        for block in _PYTHON_BLOCK.finditer(text):
            yield from in_python(block[1], text.count("\n", 0, block.start(1)) + 1)
        return
    if word := forbidden_word(path.stem):
        yield Finding(1, path.name, word)
    yield from in_python(text)


def main(arguments: Sequence[str]) -> int:
    """Print the findings in the given files, by default in all tracked ones; 1 if there are any."""
    listing = ["git", "ls-files", "*.py", "*.md"]
    names = arguments or subprocess.check_output(listing, cwd=ROOT, text=True).splitlines()
    # A tracked file that was just deleted is still listed.
    paths = [(name, ROOT / name) for name in names if (ROOT / name).exists()]
    findings = [(name, each) for name, path in paths for each in in_file(path)]
    for name, finding in findings:
        print(
            f"{name}:{finding.line}: {finding.identifier}: "
            f"instead of {finding.word!r}: {FORBIDDEN[finding.word]}"
        )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
