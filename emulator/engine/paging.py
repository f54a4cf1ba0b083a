"""Pages of a list in the order of names, with opaque tokens."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from emulator.refusals import invalid_argument

DEFAULT_PAGE_SIZE = 1000
MAX_PAGE_SIZE = 1000


def page(names: Iterable[str], page_size: int, page_token: str) -> tuple[list[str], str]:
    """The names of one page and the token of the next, "" after the last.

    The token holds the last name seen, so that a page neither repeats nor skips what was there all
    along, whatever is created or deleted between two calls.

    Raises:
        InvalidArgument: a negative size, or a token that no list has given out.
    """
    if page_size < 0:
        raise invalid_argument("page_size")
    after = _decode(page_token)
    rest = sorted(name for name in names if name > after)
    size = min(page_size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    return rest[:size], _encode(rest[size - 1]) if len(rest) > size else ""


def _encode(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _decode(token: str) -> str:
    try:
        name = base64.urlsafe_b64decode(token.encode()).decode()
    except (ValueError, binascii.Error):
        name = ""
    if token and not name.startswith("projects/"):
        raise invalid_argument("page_token")
    return name
