"""A subscription's filter: parsed once, then applied to the attributes of every message.

https://cloud.google.com/pubsub/docs/subscription-message-filter describes the language:

    expression = operand { "AND" operand } | operand { "OR" operand }
    operand    = { "NOT" | "-" } ( "(" expression ")" | has | compares | prefix )
    has        = "attributes" ":" key
    compares   = "attributes" "." key ( "=" | "!=" ) string
    prefix     = "hasPrefix" "(" "attributes" "." key "," string ")"
    key        = letters, digits, "_" and "-", or a string
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .errors import InvalidArgument

Filter = Callable[[Mapping[str, str]], bool]

# A filter within the service's limit of 256 bytes cannot nest deeper. Each level uses some of the
# parser's stack.
MAX_DEPTH = 128

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_COMPARISON = re.compile(r"!=|=")
_MARK = re.compile(r"[-().,:]")
_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{3})|(.))", re.DOTALL
)
_PLAIN_ESCAPES = {
    **{mark: mark for mark in "\\\"'?`"},
    **dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)),
}


def compile_filter(text: str) -> Filter:
    """Return a function that decides by a message's attributes whether the message passes.

    With an empty text every message passes.

    Raises:
        InvalidArgument: `text` has a syntax error. The error names the position.
    """
    if not text.strip():
        return lambda attributes: True
    parser = _Parser(text)
    accepts = parser.expression()
    parser.expect_end()
    return accepts


class _Parser:
    """Parses from left to right. Every method moves the position past the text that it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0

    def expression(self) -> Filter:
        operands = [self._operand()]
        joined_by = ""
        while (operator := self._peek(_WORD)) in ("AND", "OR"):
            if joined_by and operator != joined_by:
                raise self._refusal("AND and OR need parentheses where they meet")
            joined_by = operator
            self._take(_WORD)
            operands.append(self._operand())
        if len(operands) == 1:
            return operands[0]
        return _any_of(operands) if joined_by == "OR" else _all_of(operands)

    def expect_end(self) -> None:
        # The search for an operator has already skipped the space before the end.
        if self._position < len(self._text):
            raise self._refusal("expected AND, OR or the end")

    def _operand(self) -> Filter:
        negated = False
        while self._peek(_MARK) == "-" or self._peek(_WORD) == "NOT":
            self._take(_MARK if self._peek(_MARK) else _WORD)
            negated = not negated
        operand = self._group() if self._peek(_MARK) == "(" else self._condition()
        return _negation(operand) if negated else operand

    def _group(self) -> Filter:
        if self._depth == MAX_DEPTH:
            raise self._refusal("too many parentheses")
        self._depth += 1
        self._expect("(")
        inner = self.expression()
        self._expect(")")
        self._depth -= 1
        return inner

    def _condition(self) -> Filter:
        word = self._peek(_WORD)
        if word == "hasPrefix":
            return self._prefix()
        if word != "attributes":
            raise self._refusal("expected attributes, hasPrefix, NOT or (")
        self._take(_WORD)
        if self._peek(_MARK) == ":":
            self._expect(":")
            return _has(self._key())
        self._expect(".")
        key = self._key()
        operator = self._take(_COMPARISON)
        if not operator:
            raise self._refusal("expected = or !=")
        equals = _equals(key, self._string())
        return equals if operator == "=" else _negation(equals)

    def _prefix(self) -> Filter:
        self._take(_WORD)
        self._expect("(")
        if self._take(_WORD) != "attributes":
            raise self._refusal("expected attributes")
        self._expect(".")
        key = self._key()
        self._expect(",")
        prefix = self._string()
        self._expect(")")
        return _has_prefix(key, prefix)

    # ---- words ---------------------------------------------------------------------------------

    def _key(self) -> str:
        return self._take(_KEY) or self._string("expected an attribute's key")

    def _string(self, otherwise: str = "expected a string in double quotes") -> str:
        literal = self._take(_STRING)
        if not literal:
            raise self._refusal(otherwise)
        return _ESCAPE.sub(self._unescape, literal[1:-1])

    def _unescape(self, match: re.Match[str]) -> str:
        hexadecimal = match[1] or match[2] or match[3]
        if match[5]:
            if match[5] not in _PLAIN_ESCAPES:
                raise self._refusal(f"unknown escape \\{match[5]} in a string")
            return _PLAIN_ESCAPES[match[5]]
        code = int(hexadecimal, 16) if hexadecimal else int(match[4], 8)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise self._refusal(f"{match[0]} in a string is not a character")
        return chr(code)

    def _expect(self, mark: str) -> None:
        if self._peek(_MARK) != mark:
            raise self._refusal(f"expected {mark}")
        self._take(_MARK)

    def _peek(self, pattern: re.Pattern[str]) -> str:
        """Return the next text that matches, without the space before it; "" without a match."""
        self._skip_space()
        match = pattern.match(self._text, self._position)
        return match[0] if match else ""

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = self._peek(pattern)
        self._position += len(found)
        return found

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._position)
        self._position = match.end() if match else self._position

    def _refusal(self, problem: str) -> InvalidArgument:
        return InvalidArgument(
            "You have passed an invalid argument to the service (argument=Invalid filter: "
            f"{problem}, at position {self._position} of '{self._text}')."
        )


def _has(key: str) -> Filter:
    return lambda attributes: key in attributes


def _equals(key: str, value: str) -> Filter:
    return lambda attributes: attributes.get(key) == value


def _has_prefix(key: str, prefix: str) -> Filter:
    return lambda attributes: key in attributes and attributes[key].startswith(prefix)


def _negation(operand: Filter) -> Filter:
    return lambda attributes: not operand(attributes)


def _all_of(operands: list[Filter]) -> Filter:
    return lambda attributes: all(operand(attributes) for operand in operands)


def _any_of(operands: list[Filter]) -> Filter:
    return lambda attributes: any(operand(attributes) for operand in operands)
