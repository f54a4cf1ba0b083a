"""Pictures of the console: `make browser`, and the pictures of the documentation.

Opens every screen of a broker with some work at three widths, light and dark, checks it for screen
readers, and writes a picture of each. With --docs it writes the pictures of docs/ instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from pullstream import Message, SubscriberClient
from pullstream_emulator import Emulator
from tests.emulator.chromium_pages import chromium, opened
from tests.emulator.rest_client import RestClient

WIDTHS = (360, 800, 1600)
SCHEMES = ("light", "dark")
HEIGHT = 900
DOCS = Path(__file__).parents[3] / "docs"

PROJECT = "projects/shop"
ORDERS = f"{PROJECT}/topics/orders"

SCREENS = (
    "map",
    "messages",
    "topics/shop/orders",
    "messages/shop/orders/7",
    "subscriptions/shop/billing",
    "dead-letters",
    "push",
    "schemas",
    "schemas/shop/order",
    "feeds",
    "channels",
    "faults",
    "search?q=orders",
)

# Seconds in which the broker works before the first picture.
WORK_SECONDS = 12


def arrange(rest: RestClient) -> None:
    """Create the resources of a small shop."""
    fields = [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}]
    definition = json.dumps({"type": "record", "name": "Order", "fields": fields})
    schema = {"type": "AVRO", "definition": definition}
    rest.ok("POST", f"/v1/{PROJECT}/schemas?schemaId=order", schema)
    settings = {"schema": f"{PROJECT}/schemas/order", "encoding": "JSON"}
    rest.ok("PUT", f"/v1/{ORDERS}", {"schemaSettings": settings})
    for topic in ("failed", "clicks", "archive"):
        rest.ok("PUT", f"/v1/{PROJECT}/topics/{topic}")
    dead_letters = {"deadLetterTopic": f"{PROJECT}/topics/failed", "maxDeliveryAttempts": 5}
    subscriptions: dict[str, object] = {
        "billing": {
            "topic": ORDERS,
            "deadLetterPolicy": dead_letters,
            "retryPolicy": {"minimumBackoff": "0.2s", "maximumBackoff": "1s"},
        },
        "shipping": {"topic": ORDERS, "enableMessageOrdering": True},
        "invoices": {"topic": ORDERS, "pushConfig": {"pushEndpoint": "http://127.0.0.1:9/hook"}},
        "statistics": {"topic": f"{PROJECT}/topics/clicks"},
        "repair": {"topic": f"{PROJECT}/topics/failed"},
    }
    for name, subscription in subscriptions.items():
        rest.ok("PUT", f"/v1/{PROJECT}/subscriptions/{name}", subscription)
    rest.call("PUT", "/v0/topics/clicks?project=shop", {})
    router = {"source": "clicks", "dest": "archive"}
    rest.call("PUT", "/v0/routers/to-archive?project=shop", router)
    rest.ok("POST", "/v0/admin/faults", {"fault": "delay:Pull:0.1"})


def work(emulator: Emulator, stop: threading.Event) -> None:
    """Publish orders and clicks until the end. Every seventh order fails."""

    def bill(message: Message) -> None:
        if json.loads(message.data)["id"] % 7:
            message.ack()
        else:
            message.nack()

    with SubscriberClient(endpoint=emulator.endpoint) as client:
        billing = client.subscribe(f"{PROJECT}/subscriptions/billing", bill)
        statistics = client.subscribe(
            f"{PROJECT}/subscriptions/statistics", lambda message: message.ack()
        )
        number = 0
        while not stop.wait(0.2):
            number += 1
            order = json.dumps({"id": number, "item": "book" if number % 2 else "pen"})
            customer = f"customer-{number % 3}"
            emulator.publish(ORDERS, order, customer, currency="EUR")
            for _ in range(4):
                emulator.publish(f"{PROJECT}/topics/clicks", b"/books/%d" % number)
        for future in (billing, statistics):
            future.cancel()
            future.result()


def open_screen(page: Page, endpoint: str, screen: str) -> None:
    """Open a screen, and wait until it has live data."""
    page.goto("about:blank")
    page.goto(f"http://{endpoint}/console/#/{screen}")
    page.locator("#connection[data-state=live]").wait_for()
    page.wait_for_timeout(2500)


def serious_findings(page: Page) -> list[str]:
    """Return the findings of axe-core that are serious for users of screen readers."""
    violations = Axe().run(page).response["violations"]
    return [each["id"] for each in violations if each["impact"] in ("serious", "critical")]


def main(folder: Path, *, docs: bool) -> int:
    """Write the pictures; return the exit code."""
    problems: list[str] = []
    with Emulator(rest=True) as emulator, chromium() as browser:
        arrange(RestClient(emulator.endpoint))
        stop = threading.Event()
        worker = threading.Thread(target=work, args=(emulator, stop))
        worker.start()
        try:
            stop.wait(WORK_SECONDS)
            if docs:
                size = {"width": 1100, "height": 660}
                with opened(browser, problems, viewport=size, color_scheme="light") as page:
                    for screen, name in (("map", "map"), ("messages/shop/orders/7", "message")):
                        open_screen(page, emulator.endpoint, screen)
                        page.screenshot(path=DOCS / f"console-{name}.png")
                return 0
            folder.mkdir(parents=True, exist_ok=True)
            for width in WIDTHS:
                for scheme in SCHEMES:
                    size = {"width": width, "height": HEIGHT}
                    with opened(browser, problems, viewport=size, color_scheme=scheme) as page:
                        for screen in SCREENS:
                            open_screen(page, emulator.endpoint, screen)
                            name = screen.replace("/", "-").replace("?", "-")
                            path = folder / f"{name}-{width}-{scheme}.png"
                            page.screenshot(path=path, full_page=True)
                            overflow = page.evaluate(
                                "document.documentElement.scrollWidth - window.innerWidth"
                            )
                            if overflow > 0:
                                problems.append(f"{path.name} is {overflow} pixels too wide")
                            found = serious_findings(page)
                            problems.extend(f"{path.name}: {each}" for each in found)
                            print(path, flush=True)
        finally:
            stop.set()
            worker.join()
    for problem in problems:
        print(f"PROBLEM {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--docs", action="store_true", help="write the pictures of docs/")
    options = parser.parse_args()
    sys.exit(main(options.out, docs=options.docs))
