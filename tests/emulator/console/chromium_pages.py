"""Pages of the console in headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.optional_tools import missing

# Longest wait for something on a page, in milliseconds. Chromium is slow on a busy machine.
TIMEOUT = 30_000

_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser. Skip the test without Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        missing("chromium", "there is no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, errors: list[str], **options: Any) -> Iterator[Page]:
    """Yield an empty page.

    Args:
        browser: The browser.
        errors: Receives each exception in the page, and each violation of its security policy.
        options: Options of the page, such as its `viewport`.
    """
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **options)
    page = context.new_page()
    page.set_default_timeout(TIMEOUT)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: (
            errors.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    try:
        yield page
    finally:
        context.close()
