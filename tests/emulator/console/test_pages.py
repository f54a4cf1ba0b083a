"""The files of the console over HTTP."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import pullstream_emulator
from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_emulator.rest.server import Rest
from tests.emulator.wire import TIMEOUT

STATIC = Path(pullstream_emulator.__file__).parent / "console" / "static"
FILES = sorted(path.name for path in STATIC.iterdir())
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def get(
    emulator: Emulator, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], str]:
    """Return status, headers and text of an answer."""
    with closing(http.client.HTTPConnection(emulator.endpoint, timeout=TIMEOUT)) as connection:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read().decode()


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        yield emulator


def test_a_browser_is_redirected_from_the_root_to_the_console(emulator: Emulator) -> None:
    """Other clients of `/`, such as probes, still get `Ok`."""
    status, headers, _ = get(emulator, "/", BROWSER)
    assert (status, headers["Location"]) == (302, "console/")
    assert get(emulator, "/")[::2] == (200, "Ok\n")
    assert get(emulator, "/", {"Accept": "*/*"})[::2] == (200, "Ok\n")
    assert get(emulator, "/healthz", BROWSER)[::2] == (200, "Ok\n")
    status, headers, _ = get(emulator, "/console")
    assert (status, headers["Location"]) == (302, "console/")


@pytest.mark.parametrize("name", ["", *FILES])
def test_console_files_are_served_with_their_content_types(emulator: Emulator, name: str) -> None:
    """The pages may load nothing from elsewhere, and no other site may show them in a frame."""
    status, headers, text = get(emulator, f"/console/{name}")
    assert status == 200
    assert text == (STATIC / (name or "index.html")).read_text(encoding="utf-8")
    kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    expected = kind.get(name.rpartition(".")[2], "text/html")
    assert headers["Content-Type"] == f"{expected}; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    ["nothing.js", "..%2fpages.py", "%2e%2e/pages.py", "pages.py", "../pages.py", "a.b.js", "x"],
)
def test_paths_outside_the_console_folder_are_not_served(emulator: Emulator, path: str) -> None:
    """No spelling of a path leads out of the folder."""
    assert get(emulator, f"/console/{path}")[0] == 404


def test_console_pages_refer_to_no_external_address() -> None:
    """The pages work without the internet, below any prefix. Their files stay small."""
    for name in FILES:
        text = (STATIC / name).read_text(encoding="utf-8")
        found = set(re.findall(r"(?:https?:)?//[\w.-]+", text))
        assert found <= {"http://www.w3.org"}, name
        assert not re.search(r"""(?:href|src)=["']/""", text), name
    assert sum(path.stat().st_size for path in STATIC.iterdir()) < 200_000


def test_console_pages_are_served_without_a_token() -> None:
    """The pages tell nothing about the broker. Their calls need a token."""
    access = Access({"secret": Principal("ci", frozenset({"test"}))})
    with Emulator(rest=True, access=access) as emulator:
        assert get(emulator, "/console/")[0] == 200
        assert get(emulator, "/console/app.js", {"Sec-Fetch-Site": "cross-site"})[0] == 200
        assert get(emulator, "/v0/status")[0] == 401


def test_the_console_refuses_a_foreign_host_header(emulator: Emulator) -> None:
    """A page of DNS rebinding must not get the console for its own site."""
    assert get(emulator, "/console/", {"Host": "evil.example"})[0] == 403


def test_the_page_of_a_read_only_console_is_marked_as_read_only() -> None:
    """The page then has no actions."""
    with Emulator(rest=Rest(console="read-only")) as emulator:
        assert 'data-mode="read-only"' in get(emulator, "/console/")[2]


def test_a_broker_with_the_console_switched_off_serves_no_console_pages() -> None:
    """Then a browser gets `Ok` like all others."""
    with Emulator(rest=Rest(console=None)) as emulator:
        assert get(emulator, "/console/")[0] == 404
        assert get(emulator, "/", BROWSER)[::2] == (200, "Ok\n")
