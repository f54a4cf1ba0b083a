"""Writing of JSON on one line, with the text of some values as it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


class Json(str):
    """The text of a JSON value."""

    __slots__ = ()


def dumps(value: Any) -> Json:
    """Return a value's text, on one line."""
    return Json(_encode(value))


def to_object(content: Mapping[str, Any]) -> Json:
    """Return an object with these members, on one line; Json values are inserted unchanged."""
    members = (
        f"{_encode(name)}:{value if isinstance(value, Json) else _encode(value)}"
        for name, value in content.items()
    )
    return Json("{" + ",".join(members) + "}")


def to_array(elements: Iterable[Json]) -> Json:
    """Return an array of these values, on one line; their texts are inserted unchanged."""
    return Json("[" + ",".join(elements) + "]")


# Created once, because creating an encoder takes longer than encoding most values.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
