"""Pages of a list, sorted by name, with opaque tokens."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from pullstream_emulator.error_texts import invalid_argument

DEFAULT_PAGE_SIZE = 1000
MAX_PAGE_SIZE = 1000


def page(names: Iterable[str], page_size: int, page_token: str) -> tuple[list[str], str]:
    """Return the names of one page and the token of the next page, "" after the last.

    The token contains the last name of the page. So a name that exists during the whole listing is
    neither repeated nor skipped, even if other names are created or deleted between two calls.

    Args:
        names: All names, in any order.
        page_size: Maximum number of names on the page; 0 means DEFAULT_PAGE_SIZE. It is limited to
            MAX_PAGE_SIZE.
        page_token: The token from the page before, "" for the first page.

    Raises:
        InvalidArgument: `page_size` is negative, or `page_token` is not from a list.
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
