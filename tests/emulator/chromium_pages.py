"""Pages in headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.optional_tools import missing

# Longest wait for something on a page, in milliseconds. Chromium is slow on a busy machine.
TIMEOUT = 30_000

# Playwright takes a second to import, and each process of pytest imports all tests. So only the
# tests that use it import it.
if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from playwright.sync_api import expect as expect
else:

    def expect(actual: Any) -> Any:
        """Return Playwright's assertions, which wait until they hold."""
        from playwright.sync_api import expect

        expect.set_options(timeout=TIMEOUT)
        return expect(actual)


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
def chromium(*hosts: str) -> Iterator[Browser]:
    """Yield a browser that resolves these names to this machine. Skip the test without Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        missing("chromium", "there is no Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    rules = ",".join(f"MAP {host} 127.0.0.1" for host in hosts)
    arguments = [*_ARGUMENTS, f"--host-resolver-rules={rules}"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
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
