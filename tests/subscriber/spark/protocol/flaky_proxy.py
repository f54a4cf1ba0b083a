"""A proxy in front of an object store, which loses answers."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class FlakyProxy(ThreadingHTTPServer):
    """Passes requests on. The first puts are carried out, and answered with status 500.

    Attributes:
        losses: How many answers of puts are lost from now on.
        ignored_headers: Lower-case names of headers that are not passed on.
        requests: Methods of the requests until now.
    """

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = urlsplit(behind).netloc
        self.losses = 0
        self.ignored_headers: set[str] = set()
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FlakyProxy

    def do_GET(self) -> None:
        self.server.requests.append(self.command)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        ignored = self.server.ignored_headers
        sent = {name: text for name, text in self.headers.items() if name.lower() not in ignored}
        connection = http.client.HTTPConnection(self.server.behind, timeout=30)
        try:
            connection.request(self.command, self.path, body, sent)
            response = connection.getresponse()
            status, headers, content = response.status, response.getheaders(), response.read()
        finally:
            connection.close()
        if self.command == "PUT" and self.server.losses > 0:
            self.server.losses -= 1
            status, headers, content = 500, [], b""
        self.send_response(status)
        for name, text in headers:
            is_length = name.lower() == "content-length" and self.command != "HEAD"
            if not is_length and name.lower() not in ("transfer-encoding", "connection", "date"):
                self.send_header(name, text)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")

    do_PUT = do_HEAD = do_DELETE = do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:
        return


@contextmanager
def flaky_proxy(behind: str) -> Iterator[FlakyProxy]:
    proxy = FlakyProxy(behind)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
