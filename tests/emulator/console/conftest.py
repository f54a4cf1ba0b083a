"""A broker with the console, and a page of a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pullstream_emulator import Emulator
from tests.emulator.chromium_pages import chromium, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page. An exception in it, or a violation of its security policy, is a failure."""
    errors: list[str] = []
    with opened(browser, errors, viewport={"width": 1280, "height": 900}) as page:
        yield page
    assert errors == []
