"""A local server of Google Cloud Storage: fake-gcs-server, with puts in the form of obstore.

fake-gcs-server has the JSON interface, and of the XML interface everything but puts. The server
here turns a put into an upload of the JSON interface with the same condition, which
fake-gcs-server checks.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlencode

from pullstream_protocol.clock import SYSTEM_CLOCK

BUCKET = "lake"
# Seconds within which the server answers.
START = 30.0


class _Front(BaseHTTPRequestHandler):
    """Passes on requests."""

    protocol_version = "HTTP/1.1"
    behind: int

    def do_PUT(self) -> None:
        bucket, _, name = unquote(self.path.lstrip("/")).partition("/")
        query = {"uploadType": "media", "name": name}
        if condition := self.headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = condition
        length = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(length)
        target = f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"
        status, _, body = self._ask("POST", target, content)
        if status != 200:
            self._answer(status, {}, body)
            return
        stored = json.loads(body)
        headers = {"ETag": f'"{stored["etag"]}"', "x-goog-generation": stored["generation"]}
        self._answer(status, headers, b"")

    def do_GET(self) -> None:
        self._answer(*self._ask(self.command, self.path))

    do_HEAD = do_DELETE = do_GET  # noqa: N815

    def _ask(
        self, method: str, target: str, content: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        kept = {
            name: text
            for name, text in self.headers.items()
            if name.lower() in ("range", "content-type", "host")
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.behind, timeout=30)
        try:
            connection.request(method, target, content, kept)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        # The answer to HEAD has the length of a body that is not sent.
        own = {"transfer-encoding", "connection", "date"}
        own |= set() if self.command == "HEAD" else {"content-length"}
        for name, text in headers.items():
            if name.lower() not in own:
                self.send_header(name, text)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        return


@contextmanager
def running(program: str) -> Iterator[dict[str, str]]:
    """Yield the settings of a server with the bucket `lake`."""
    front = ThreadingHTTPServer(("127.0.0.1", 0), _Front)
    url = f"http://127.0.0.1:{front.server_port}"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        _Front.behind = free.getsockname()[1]
    place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(_Front.behind)]
    public = ["-public-host", url.partition("//")[2], "-backend", "memory"]
    process = subprocess.Popen(
        [program, *place, *public], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    thread = threading.Thread(target=front.serve_forever)
    thread.start()
    try:
        _create_bucket(_Front.behind)
        account = {"gcs_base_url": url, "disable_oauth": True}
        empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        yield {
            "google_service_account_key": json.dumps(account | empty),
            "allow_http": "true",
        }
    finally:
        front.shutdown()
        thread.join()
        front.server_close()
        process.terminate()
        process.wait()


def _create_bucket(port: int) -> None:
    """Create the bucket as soon as the server listens."""
    deadline, pause = SYSTEM_CLOCK.monotonic() + START, threading.Event()
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            body = json.dumps({"name": BUCKET})
            connection.request("POST", "/storage/v1/b?project=p", body)
            assert connection.getresponse().status == 200
            return
        except ConnectionError:
            if SYSTEM_CLOCK.monotonic() > deadline:
                raise
        finally:
            connection.close()
        pause.wait(0.1)
