"""Avro schemas as objects (https://avro.apache.org/docs/1.12.0/specification).

Logical types, documentation and the order of fields are ignored, because they do not affect which
bytes are a valid message. Of a default, only its existence matters here, so its value is not
checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .definition import BadDefinition

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MAX_FIXED_SIZE = 2**31 - 1

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts.

    Attributes:
        name: One of PRIMITIVES.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Array:
    """An array.

    Attributes:
        items: Type of its items.
        name: Its name as a branch of a union.
    """

    items: AvroType
    name: str = "array"


@dataclass(frozen=True, slots=True)
class Map:
    """A map with strings as keys.

    Attributes:
        values: Type of its values.
        name: Its name as a branch of a union.
    """

    values: AvroType
    name: str = "map"


@dataclass(frozen=True, slots=True)
class Union:
    """A union.

    Attributes:
        branches: Its branches.
        by_name: The same branches by name, because a search through `branches` is too slow.
    """

    branches: tuple[Branch, ...]
    by_name: Mapping[str, Branch] = field(compare=False)


# The named types are compared by identity: a record may contain itself.
@dataclass(eq=False, slots=True)
class Record:
    """A record. Its fields are added after its creation, because they may refer to it.

    Attributes:
        name: Its full name.
        aliases: Its other full names.
        fields: Its fields, in the order of their encoding.
    """

    name: str
    aliases: frozenset[str]
    fields: list[Field] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    Attributes:
        name: Its name within the record.
        aliases: Its other names.
        type: Type of its value.
        has_default: Whether it has a default.
    """

    name: str
    aliases: frozenset[str]
    type: AvroType
    has_default: bool


@dataclass(frozen=True, eq=False, slots=True)
class Enum:
    """An enum.

    Attributes:
        name: Its full name.
        aliases: Its other full names.
        symbols: The number of each symbol.
        has_default: Whether it has a default.
    """

    name: str
    aliases: frozenset[str]
    symbols: Mapping[str, int]
    has_default: bool


@dataclass(frozen=True, eq=False, slots=True)
class Fixed:
    """A type for values with a fixed number of bytes.

    Attributes:
        name: Its full name.
        aliases: Its other full names.
        size: Number of bytes of a value.
    """

    name: str
    aliases: frozenset[str]
    size: int


Branch: TypeAlias = Primitive | Array | Map | Record | Enum | Fixed
AvroType: TypeAlias = Branch | Union


def parse(text: str) -> AvroType:
    """Parse a schema in its JSON form.

    Raises:
        BadDefinition: `text` is not a schema. The error names the problem.
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
        by_name: dict[str, Branch] = {}
        for part in source:
            branch = self.type(part, namespace)
            if isinstance(branch, Union):
                raise BadDefinition("a union must not contain a union")
            if branch.name in by_name:
                raise BadDefinition(f"a union must not contain {branch.name} twice")
            by_name[branch.name] = branch
        if not by_name:
            raise BadDefinition("a union must contain a type")
        return Union(tuple(by_name.values()), by_name)

    def _record(self, source: dict[str, Any], namespace: str) -> Record:
        name, namespace, aliases = self._new_name(source, namespace)
        fields = source.get("fields")
        if not isinstance(fields, list):
            raise BadDefinition(f"record {name} needs a list of fields")
        # Register the record before its fields are parsed, because a field may have this type.
        record = Record(name, aliases)
        self._named[name] = record
        names: set[str] = set()
        for part in fields:
            if not isinstance(part, dict):
                raise BadDefinition(f"{_shown(part)} is not a field of record {name}")
            new = Field(
                _valid_name(part.get("name")),
                frozenset(_valid_name(alias) for alias in _strings(part, "aliases")),
                self.type(part.get("type"), namespace),
                "default" in part,
            )
            if new.name in names:
                raise BadDefinition(f"record {name} has two fields {new.name}")
            names.add(new.name)
            record.fields.append(new)
        return record

    def _enum(self, source: dict[str, Any], namespace: str) -> Enum:
        name, _, aliases = self._new_name(source, namespace)
        listed = [_valid_name(symbol) for symbol in _strings(source, "symbols")]
        symbols = {symbol: number for number, symbol in enumerate(listed)}
        if not listed or len(symbols) < len(listed):
            raise BadDefinition(f"enum {name} needs symbols, all different")
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
        """Return the full name of a new type, the namespace inside it, and its aliases."""
        name = source.get("name")
        if isinstance(source.get("namespace"), str):
            namespace = source["namespace"]
        full = _full_name(name, namespace) if isinstance(name, str) else ""
        namespace = full.rpartition(".")[0]
        for part in full.split("."):
            _valid_name(part)
        if full in PRIMITIVES or full in self._named:
            raise BadDefinition(f"type {full} is already defined")
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
