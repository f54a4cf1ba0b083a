"""A real browser, headless Chromium, whose pages run scripts for tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.optional_tools import missing

# Seconds. Chromium starts slowly on a busy machine.
TIMEOUT = 60.0

_ENDPOINT = "DevTools listening on "


class Browser:
    """Runs scripts in pages, by the DevTools protocol.

    Args:
        endpoint: The address of its DevTools.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def run(self, url: str, script: str) -> Any:
        """Open a page and call `script`, an async JavaScript function, in it.

        Returns:
            The function's result. It must be a JSON value.
        """
        return asyncio.run(asyncio.wait_for(self._run(url, script), TIMEOUT))

    async def _run(self, url: str, script: str) -> Any:
        async with aiohttp.ClientSession() as session:
            async with session.put(f"{self._endpoint}/json/new?about:blank") as answer:
                target = await answer.json()
            async with session.ws_connect(target["webSocketDebuggerUrl"]) as page:
                await _command(page, "Page.enable")
                navigated = await _command(page, "Page.navigate", url=url)
                assert "errorText" not in navigated, navigated
                while (await page.receive_json()).get("method") != "Page.loadEventFired":
                    pass
                answered = await _command(
                    page,
                    "Runtime.evaluate",
                    expression=f"({script})()",
                    awaitPromise=True,
                    returnByValue=True,
                )
                assert "exceptionDetails" not in answered, answered
                return answered["result"].get("value")


async def _command(
    page: aiohttp.ClientWebSocketResponse[Any], method: str, **parameters: Any
) -> Any:
    await page.send_json({"id": 1, "method": method, "params": parameters})
    while "id" not in (message := await page.receive_json()):
        pass
    assert "error" not in message, message
    return message["result"]


@contextmanager
def chromium(profile: Path, *hosts: str) -> Iterator[Browser]:
    """Yield a browser that resolves these names to this machine. Skip the test without Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        missing("chromium", "there is no Chromium: apt-get install chromium")
    assert program is not None
    process = subprocess.Popen(
        [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-proxy-server",
            "--disable-background-networking",
            f"--user-data-dir={profile}",
            "--remote-debugging-port=0",
            "--host-resolver-rules=" + ",".join(f"MAP {host} 127.0.0.1" for host in hosts),
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Chromium starts other processes. The new session lets the test end all of them.
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            if line.startswith(_ENDPOINT):
                address = line.removeprefix(_ENDPOINT).removeprefix("ws://").partition("/")[0]
                break
            said += line
        else:
            raise AssertionError(f"Chromium did not start: {said}")
        yield Browser(f"http://{address}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
