"""Avro schemas as objects (https://avro.apache.org/docs/1.12.0/specification).

Logical types are left aside, as are documentation and the order of fields: none of them says which
bytes are a message. Nor are defaults looked into, for only whether there is one matters here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .definition import BadDefinition

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_FIXED_SIZE = 2**31 - 1

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str


@dataclass(frozen=True, slots=True)
class Array:
    items: AvroType
    name: str = "array"


@dataclass(frozen=True, slots=True)
class Map:
    values: AvroType
    name: str = "map"


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[Branch, ...]


# The named types are compared by identity: a record may contain itself.
@dataclass(eq=False, slots=True)
class Record:
    name: str
    aliases: frozenset[str]
    fields: list[Field] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    aliases: frozenset[str]
    type: AvroType
    has_default: bool


@dataclass(frozen=True, eq=False, slots=True)
class Enum:
    name: str
    aliases: frozenset[str]
    symbols: tuple[str, ...]
    has_default: bool


@dataclass(frozen=True, eq=False, slots=True)
class Fixed:
    name: str
    aliases: frozenset[str]
    size: int


Branch: TypeAlias = Primitive | Array | Map | Record | Enum | Fixed
AvroType: TypeAlias = Branch | Union


def parse(text: str) -> AvroType:
    """Read a schema in its JSON form.

    Raises:
        BadDefinition: says what is wrong.
    """
    try:
        return _Parser().type(json.loads(text), namespace="")
    except RecursionError:
        raise BadDefinition("it nests too deeply") from None
    except json.JSONDecodeError as error:
        raise BadDefinition(f"it is not JSON: {error}") from None


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Record | Enum | Fixed] = {}

    def type(self, source: Any, namespace: str) -> AvroType:
        if isinstance(source, list):
            return self._union(source, namespace)
        if isinstance(source, str):
            return self._reference(source, namespace)
        if not isinstance(source, dict):
            raise BadDefinition(f"{_shown(source)} is not a type")
        kind = source.get("type")
        if kind in ("record", "error"):
            return self._record(source, namespace)
        if kind == "enum":
            return self._enum(source, namespace)
        if kind == "fixed":
            return self._fixed(source, namespace)
        if kind == "array":
            return Array(self.type(source.get("items"), namespace))
        if kind == "map":
            return Map(self.type(source.get("values"), namespace))
        return self.type(kind, namespace)

    def _reference(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        found = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if found is None:
            raise BadDefinition(f"type {_shown(name)} is unknown")
        return found

    def _union(self, source: list[Any], namespace: str) -> Union:
        branches: list[Branch] = []
        for part in source:
            branch = self.type(part, namespace)
            if isinstance(branch, Union):
                raise BadDefinition("a union must not hold a union")
            if any(branch.name == other.name for other in branches):
                raise BadDefinition(f"a union must not hold {branch.name} twice")
            branches.append(branch)
        if not branches:
            raise BadDefinition("a union must hold a type")
        return Union(tuple(branches))

    def _record(self, source: dict[str, Any], namespace: str) -> Record:
        name, namespace, aliases = self._new_name(source, namespace)
        fields = source.get("fields")
        if not isinstance(fields, list):
            raise BadDefinition(f"record {name} needs a list of fields")
        # Known before its fields are read: they may be of its own type.
        record = Record(name, aliases)
        self._named[name] = record
        for part in fields:
            if not isinstance(part, dict):
                raise BadDefinition(f"{_shown(part)} is not a field of record {name}")
            new = Field(
                _valid_name(part.get("name")),
                frozenset(_valid_name(alias) for alias in _strings(part, "aliases")),
                self.type(part.get("type"), namespace),
                "default" in part,
            )
            if any(new.name == other.name for other in record.fields):
                raise BadDefinition(f"record {name} has two fields {new.name}")
            record.fields.append(new)
        return record

    def _enum(self, source: dict[str, Any], namespace: str) -> Enum:
        name, _, aliases = self._new_name(source, namespace)
        symbols = tuple(_valid_name(symbol) for symbol in _strings(source, "symbols"))
        if not symbols or len(set(symbols)) < len(symbols):
            raise BadDefinition(f"enum {name} needs symbols, each once")
        if "default" in source and source["default"] not in symbols:
            raise BadDefinition(f"the default of enum {name} must be one of its symbols")
        self._named[name] = enum = Enum(name, aliases, symbols, "default" in source)
        return enum

    def _fixed(self, source: dict[str, Any], namespace: str) -> Fixed:
        name, _, aliases = self._new_name(source, namespace)
        size = source.get("size")
        if type(size) is not int or not 0 <= size <= MAX_FIXED_SIZE:
            raise BadDefinition(f"fixed {name} needs a size")
        self._named[name] = fixed = Fixed(name, aliases, size)
        return fixed

    def _new_name(self, source: dict[str, Any], namespace: str) -> tuple[str, str, frozenset[str]]:
        """The full name of what `source` defines, the namespace within, and its aliases."""
        name = source.get("name")
        if isinstance(source.get("namespace"), str):
            namespace = source["namespace"]
        full = _full_name(name, namespace) if isinstance(name, str) else ""
        namespace = full.rpartition(".")[0]
        for part in full.split("."):
            _valid_name(part)
        if full in PRIMITIVES or full in self._named:
            raise BadDefinition(f"type {full} is defined already")
        aliases = _strings(source, "aliases")
        return full, namespace, frozenset(_full_name(alias, namespace) for alias in aliases)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _valid_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadDefinition(f"{_shown(name)} is not a name")
    return name


def _strings(source: dict[str, Any], key: str) -> list[str]:
    value = source.get(key, [])
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise BadDefinition(f"{key} must be a list of strings")
    return value


def _shown(source: object) -> str:
    text = json.dumps(source)
    return text if len(text) <= 40 else text[:40] + "..."
