"""Sizes in bytes, as people write them: 1048576, 512k, 64MB or 1g."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str) -> int:
    """Return a number of bytes. Units are powers of 1024.

    Raises:
        ValueError: The text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes, such as 1048576, 512k, 64MB or 1g")
    return int(match[1]) * _UNITS[match[2].lower()]
