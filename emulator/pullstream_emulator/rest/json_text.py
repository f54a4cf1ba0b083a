"""Writing of JSON on one line."""

from __future__ import annotations

from typing import Any

import msgspec


def to_json(value: Any) -> str:
    """Return a value's text; msgspec.Raw values in it keep their text."""
    return msgspec.json.encode(value).decode()
