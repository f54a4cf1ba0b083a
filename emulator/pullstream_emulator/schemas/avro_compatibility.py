"""Compatibility of Avro schemas: whether one schema can read messages of another.

The rules are in the chapter "Schema Resolution" of Avro's specification.
"""

from __future__ import annotations

from .avro_types import (
    Array,
    AvroType,
    Branch,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from .definition import Incompatible

# Most pairs of types that are compared, about 1 s of work. Branches of unions that have the same
# names need one comparison each, others one for each pair of them.
_MAX_COMPARISONS = 200_000

# For each type, the other types that can read its values.
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def check_readable(reader: AvroType, writer: AvroType) -> None:
    """Raise Incompatible unless `reader` can read every message of `writer`."""
    try:
        _Resolution().check(reader, writer)
    except RecursionError:
        raise Incompatible("The schemas nest too deeply to be compared.") from None
    except _TooManyComparisons:
        raise Incompatible("The schemas have too many types to be compared.") from None


class _TooManyComparisons(Exception):
    pass


class _Resolution:
    def __init__(self) -> None:
        self._comparisons_left = _MAX_COMPARISONS
        # Known pairs of reader and writer, oldest first. A record may contain itself, so a pair
        # counts as readable while it is being checked.
        self._readable: dict[tuple[Record, Record], None] = {}
        self._refused: set[tuple[Record, Record]] = set()

    def check(self, reader: AvroType, writer: AvroType) -> None:
        if isinstance(writer, Union):
            for branch in writer.branches:
                self.check(reader, branch)
        elif isinstance(reader, Union):
            # Try the branch with the same name first: it usually matches, and a union may have
            # thousands of branches.
            same = reader.by_name.get(writer.name)
            if same is not None and self._reads(same, writer):
                return
            if not any(self._reads(branch, writer) for branch in reader.branches):
                raise Incompatible(f"{writer.name} is not in the union of the other revision")
        else:
            self._check_branch(reader, writer)

    def _reads(self, reader: Branch, writer: Branch) -> bool:
        known = len(self._readable)
        try:
            self._check_branch(reader, writer)
        except Incompatible:
            # Pairs that were found readable meanwhile may depend on the pair that is not readable.
            while len(self._readable) > known:
                self._readable.popitem()
            return False
        return True

    def _check_branch(self, reader: Branch, writer: Branch) -> None:
        self._comparisons_left -= 1
        if self._comparisons_left < 0:
            raise _TooManyComparisons
        if isinstance(reader, Primitive) and isinstance(writer, Primitive):
            promoted = _PROMOTIONS.get(writer.name, set())
            if reader.name != writer.name and reader.name not in promoted:
                raise Incompatible(f"{writer.name} cannot be read as {reader.name}")
        elif isinstance(reader, Array) and isinstance(writer, Array):
            self.check(reader.items, writer.items)
        elif isinstance(reader, Map) and isinstance(writer, Map):
            self.check(reader.values, writer.values)
        elif isinstance(reader, Record) and isinstance(writer, Record):
            self._check_record(reader, writer)
        elif isinstance(reader, Enum) and isinstance(writer, Enum):
            _check_names(reader, writer)
            missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
            if missing and not reader.has_default:
                raise Incompatible(f"{writer.name}.{missing[0]} is missing in {reader.name}")
        elif isinstance(reader, Fixed) and isinstance(writer, Fixed):
            _check_names(reader, writer)
            if reader.size != writer.size:
                raise Incompatible(f"{reader.name} has a different size")
        else:
            raise Incompatible(f"{writer.name} cannot be read as {reader.name}")

    def _check_record(self, reader: Record, writer: Record) -> None:
        pair = (reader, writer)
        if pair in self._refused:
            raise Incompatible(f"{writer.name} cannot be read as {reader.name}")
        if pair in self._readable:
            return
        self._readable[pair] = None
        try:
            self._check_fields(reader, writer)
        except Incompatible:
            self._refused.add(pair)
            raise

    def _check_fields(self, reader: Record, writer: Record) -> None:
        _check_names(reader, writer)
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            found = next((written[n] for n in (field.name, *field.aliases) if n in written), None)
            if found is not None:
                self.check(field.type, found.type)
            elif not field.has_default:
                raise Incompatible(
                    f"field {field.name} of {reader.name} is missing in one revision and has no "
                    "default"
                )


def _check_names(reader: Record | Enum | Fixed, writer: Record | Enum | Fixed) -> None:
    """Raise Incompatible unless names agree without namespaces, or by an alias of the reader."""
    names = {reader.name, *reader.aliases}
    if writer.name in names or _unqualified(writer.name) in map(_unqualified, names):
        return
    raise Incompatible(f"{writer.name} cannot be read as {reader.name}")


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]
