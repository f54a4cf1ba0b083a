"""Attacks of web pages on a broker on the user's machine, in a real browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.rest.server import Rest
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import TOPIC
from tests.emulator.chromium_pages import chromium, opened
from tests.emulator.rest_client import V1_TOPIC, RestClient

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOREIGN_HOST = "evil.example"
# Like the name of a container in Compose. A browser sends no Sec-Fetch-Site to it.
SHORT_HOST = "pubsub"

# A page opens a stream and sends requests of every kind. A page of another site cannot read an
# answer without permission. But in mode "no-cors" the browser sends the request nevertheless.
ATTACK = """async () => {
    const broker = %s, outcomes = {};
    const ask = async (name, path, options) => {
        try {
            const answer = await fetch(broker + path, options);
            outcomes[name] = [answer.status, await answer.text()];
        } catch (error) {
            outcomes[name] = [0, error.name];
        }
    };
    outcomes.stream = await new Promise((resolve) => {
        const source = new EventSource(broker + "%s");
        source.addEventListener("caught-up", () => { source.close(); resolve("open"); });
        source.onerror = () => { source.close(); resolve("refused"); };
    });
    await ask("read", "/v1/projects/test/topics");
    await ask("readTopic", "%s");
    await ask("list", "/v0/topics");
    for (const mode of ["cors", "no-cors"]) {
        await ask("reset " + mode, "/reset", {method: "POST", mode});
        await ask("shutdown " + mode, "/shutdown", {method: "POST", mode});
        await ask("clock " + mode, "/v0/admin/clock:advance",
                  {method: "POST", mode, body: '{"seconds": 60}'});
        await ask("watch " + mode, "/v0/watch",
                  {method: "POST", mode, body: '{"topics": {"news": {"tail": true}}}'});
    }
    return outcomes;
}"""


# A request before which a browser sends a preflight request.
PREFLIGHTED = """async () => {
    const headers = {"Content-Type": "application/json", "Authorization": "Bearer x"};
    const answer = await fetch(%s + "/v1/projects/test/topics/more", {method: "PUT", headers});
    return answer.status;
}"""


def run(browser: Browser, url: str, script: str) -> Any:
    """Open a page, call `script`, an async JavaScript function, in it, and return its result."""
    with opened(browser, []) as page:
        page.goto(url)
        return page.evaluate(script)


class World:
    """A broker that allows every request, and a record of the damage."""

    def __init__(self, emulator: Emulator, browser: Browser, shut_down: list[str]) -> None:
        self.emulator = emulator
        self.browser = browser
        self._shut_down = shut_down
        self._rest = RestClient(emulator.endpoint)
        emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=TOPIC)))
        self._clock = emulator.clock.now()
        assert self._rest.raw("PUT", "/v0/topics/news", b"{}")[0] == 201
        watch = self._rest.raw("POST", "/v0/watch", b'{"topics": {"news": {"tail": true}}}')
        self._stream = json.loads(watch[2])["stream_url"]

    def attack(self, page: str, broker: str) -> Any:
        """Return the results of a page's requests to the broker at this address."""
        return run(self.browser, page, ATTACK % (json.dumps(broker), self._stream, V1_TOPIC))

    @property
    def is_untouched(self) -> bool:
        """Return whether the broker still runs, with its topics and its clock unchanged."""
        has_topic = self._rest.call("GET", V1_TOPIC).status == 200
        return has_topic and not self._shut_down and self.emulator.clock.now() < self._clock + 60


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(FOREIGN_HOST, SHORT_HOST) as browser:
        yield browser


@contextmanager
def world_of(browser: Browser, *allow_origins: str) -> Iterator[World]:
    shut_down: list[str] = []
    rest = Rest(shutdown=lambda: shut_down.append("now"))
    with Emulator(rest=rest, allow_origins=allow_origins) as emulator:
        yield World(emulator, browser, shut_down)


@pytest.fixture
def world(browser: Browser) -> Iterator[World]:
    with world_of(browser) as world:
        yield world


@pytest.fixture(scope="module")
def foreign_page() -> Iterator[str]:
    """Yield the address of a page of another site."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>prizes</title>")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, name="foreign-page")
        thread.start()
        yield f"http://{FOREIGN_HOST}:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", SHORT_HOST, FOREIGN_HOST])
def test_a_web_page_of_another_site_cannot_call_the_broker(
    world: World, foreign_page: str, host: str
) -> None:
    """The page fails with every name of the broker. The page cannot read an answer either."""
    outcomes = world.attack(foreign_page, f"http://{host}:{world.emulator.port}")
    assert outcomes.pop("stream") == "refused"
    # Status 0 without text: the browser hides the answer from the page.
    assert {tuple(each) for each in outcomes.values()} <= {(0, "TypeError"), (0, "")}
    assert world.is_untouched


def test_a_web_page_with_a_null_origin_cannot_call_the_broker(world: World) -> None:
    """A data: URL has such an origin."""
    outcomes = world.attack("data:text/html,prizes", f"http://{SHORT_HOST}:{world.emulator.port}")
    assert outcomes.pop("stream") == "refused"
    assert {tuple(each) for each in outcomes.values()} <= {(0, "TypeError"), (0, "")}
    assert world.is_untouched


def test_the_broker_refuses_requests_of_a_web_page_after_dns_rebinding(world: World) -> None:
    """The browser takes the broker for the page's own site, and shows the page every answer."""
    broker = f"http://{FOREIGN_HOST}:{world.emulator.port}"
    outcomes = world.attack(f"{broker}/", broker)
    assert outcomes.pop("stream") == "refused"
    for name, (status, text) in outcomes.items():
        assert status == 403, name
        assert "--allow-host evil.example" in text
    assert world.is_untouched


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", SHORT_HOST])
def test_a_web_page_served_by_the_broker_itself_may_call_the_broker(
    world: World, host: str
) -> None:
    """The page reads, writes and receives events."""
    broker = f"http://{host}:{world.emulator.port}"
    assert_can_do_everything(world, world.attack(f"{broker}/", broker))


@pytest.mark.parametrize("host", ["localhost", SHORT_HOST])
def test_a_web_page_of_an_allowed_origin_may_call_the_broker(
    browser: Browser, foreign_page: str, host: str
) -> None:
    """The broker permits the origin, so the browser shows the page the answers."""
    with world_of(browser, foreign_page.rstrip("/")) as world:
        broker = f"http://{host}:{world.emulator.port}"
        assert_can_do_everything(world, world.attack(foreign_page, broker))
        status = run(browser, foreign_page, PREFLIGHTED % json.dumps(broker))
        assert status == 200


def assert_can_do_everything(world: World, outcomes: Any) -> None:
    assert outcomes["stream"] == "open"
    assert outcomes["readTopic"] == [200, f'{{\n  "name": "{TOPIC}"\n}}\n']
    assert outcomes["reset cors"] == [200, "Resetting...\n"]
    assert outcomes["shutdown cors"] == [200, "Shutting down...\n"]
    assert outcomes["clock cors"][0] == 200
    assert not world.is_untouched
