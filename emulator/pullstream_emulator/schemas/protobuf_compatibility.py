"""Compatibility of Protocol Buffers schemas: whether one may follow another as a revision.

The rules are stricter than the wire form requires: only optional fields may be added or removed. So
a message of one revision has the same meaning for a client that has only the other revision.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from .definition import Incompatible

_TYPES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


def check_compatible(new: Descriptor, old: Descriptor) -> None:
    """Raise Incompatible unless `new` may follow `old`."""
    _Comparison().messages(new, old)


class _Comparison:
    def __init__(self) -> None:
        # Pairs of names that were already compared, because a message type may contain itself.
        self._seen: set[tuple[str, str]] = set()

    def messages(self, new: Descriptor, old: Descriptor) -> None:
        # A loop instead of recursion, because the caller controls how deep the types nest.
        pairs = [(new, old)]
        while pairs:
            new, old = pairs.pop()
            if (new.full_name, old.full_name) in self._seen:
                continue
            self._seen.add((new.full_name, old.full_name))
            _check_lone_fields(new, old)
            _check_lone_fields(old, new)
            for field in new.fields:
                if field.number in old.fields_by_number:
                    before = old.fields_by_number[field.number]
                    _check_field(field, before)
                    if field.message_type is not None and before.message_type is not None:
                        pairs.append((field.message_type, before.message_type))


def _check_lone_fields(here: Descriptor, there: Descriptor) -> None:
    """Raise Incompatible unless all fields that are only in `here` are optional."""
    for field in here.fields:
        if field.number not in there.fields_by_number and (field.is_repeated or field.is_required):
            raise Incompatible(
                f"{_described(field)} is missing in {there.full_name}; only an optional field may "
                "be missing"
            )


def _check_field(new: FieldDescriptor, old: FieldDescriptor) -> None:
    if new.type != old.type or _cardinality(new) != _cardinality(old):
        raise Incompatible(f"{_described(new)} is not compatible with {_described(old)}")
    if new.name != old.name:
        raise Incompatible(
            f"{new.name} = {new.number} is not compatible with {old.name} = {old.number}"
        )
    if _oneof(new) != _oneof(old):
        raise Incompatible(f"{new.name} cannot move into or out of a oneof")
    if new.enum_type is not None and old.enum_type is not None:
        _check_values(new.enum_type, old.enum_type)
        _check_values(old.enum_type, new.enum_type)


def _check_values(here: EnumDescriptor, there: EnumDescriptor) -> None:
    for value in here.values:
        other = there.values_by_name.get(value.name)
        if other is None or other.number != value.number:
            scope = here.full_name.rpartition(".")[0]
            name = f"{scope}.{value.name}" if scope else value.name
            raise Incompatible(f"{name} = {value.number} is missing in {there.full_name}")


def _described(field: FieldDescriptor) -> str:
    cardinality = _cardinality(field)
    prefix = "" if cardinality == "optional" else f"{cardinality} "
    return f"{field.name} of type {prefix}{_TYPES[field.type]}"


def _cardinality(field: FieldDescriptor) -> str:
    if field.is_repeated:
        return "repeated"
    return "required" if field.is_required else "optional"


def _oneof(field: FieldDescriptor) -> str:
    """Return the oneof of a field; "" for none and for the hidden oneof of an `optional` field."""
    oneof = field.containing_oneof
    return "" if oneof is None or oneof.name == f"_{field.name}" else str(oneof.name)
