"""Iceberg's own server of its REST catalog, from the test fixtures of the project."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.error import URLError

from pullstream_protocol.clock import SYSTEM_CLOCK

HERE = Path(__file__).parent
CLASSPATH = HERE.parents[1] / "build" / "rest-catalog" / "classpath.txt"
SERVER = "org.apache.iceberg.rest.RESTCatalogServer"

# Seconds within which the server answers.
START = 60.0


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Yield the URL of a catalog whose files are in a folder. Needs Java and Maven."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The server makes its properties of these variables: CATALOG_REST_PORT is rest.port.
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": str(folder / "warehouse"),
    }
    log = folder / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["java", "-cp", classpath(), SERVER],
            env={**os.environ, **settings},
            stdout=output,
            stderr=output,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/v1/config", server, log)
        yield url
    finally:
        server.kill()
        server.wait()


@cache
def classpath() -> str:
    """Fetch the server, and return its class path. Needs Maven."""
    maven = ["mvn", "-q", "-B", "dependency:build-classpath"]
    subprocess.run(maven, cwd=HERE, check=True, stdout=subprocess.DEVNULL)
    return CLASSPATH.read_text(encoding="utf-8")


def version() -> str:
    """Return the version of the server."""
    (jar,) = (one for one in classpath().split(":") if "open-api" in one)
    return f"Iceberg's RESTCatalogServer {Path(jar).name.split('-')[3]}"


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline, pause = SYSTEM_CLOCK.monotonic() + START, threading.Event()
    while True:
        try:
            urllib.request.urlopen(url).close()
            return
        except URLError:
            if server.poll() is not None or SYSTEM_CLOCK.monotonic() > deadline:
                raise SystemExit(log.read_text(errors="replace")[-1500:]) from None
        pause.wait(0.2)
