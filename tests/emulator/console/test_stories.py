"""Stories of users of the console, in a real browser: one for each screen."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pullstream import Message, SubscriberClient
from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_emulator.rest.server import Rest
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.completed import run_command
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.chromium_pages import TIMEOUT, expect, opened
from tests.emulator.program import running
from tests.emulator.push_endpoint import Endpoint
from tests.emulator.rest_client import V1_SUBSCRIPTION, V1_TOPIC, RestClient
from tests.emulator.wire import Wire

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.xdist_group("console")

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}],
}


class ConsolePage:
    """The console of one broker in a page, and the broker's HTTP client."""

    def __init__(self, page: Page, endpoint: str) -> None:
        self.page = page
        self.rest = RestClient(endpoint)
        self._address = f"http://{endpoint}/console/"

    def open(self, screen: str, title: str) -> Page:
        """Open a screen, and wait until it is shown."""
        self.page.goto(f"{self._address}#/{screen}")
        expect(self.page.get_by_role("heading", level=1)).to_have_text(title)
        expect(self.page.locator("#connection")).to_have_text("live")
        return self.page

    def section(self, heading: str) -> Locator:
        return self.page.locator("section, form").filter(
            has=self.page.get_by_role("heading", name=heading, exact=True)
        )

    def table(self, caption: str) -> Locator:
        return self.page.get_by_role("table", name=caption)

    def copied(self, button: str, form: str) -> str:
        """Copy a text by its button, close the dialog, and return the clipboard."""
        self.page.get_by_role("button", name=button).click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name=form, exact=True).click()
        dialog.get_by_role("button", name="Copy", exact=True).click()
        expect(dialog.get_by_role("status")).to_have_text("Copied.")
        dialog.get_by_role("button", name="Close").click()
        text: str = self.page.evaluate("navigator.clipboard.readText()")
        return text


class Console(ConsolePage):
    """The console of an emulator in this process."""

    def __init__(self, page: Page, emulator: Emulator) -> None:
        super().__init__(page, emulator.endpoint)
        self.emulator = emulator


@pytest.fixture
def console(page: Page, emulator: Emulator) -> Console:
    return Console(page, emulator)


def run_test(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a copied test in a new process."""
    (folder / "test_copied.py").write_text(text, encoding="utf-8")
    return run_command(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_copied.py"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


# ---- the whole story -----------------------------------------------------------------------------


def test_a_console_user_publishes_a_message_sets_a_fault_and_copies_a_pytest_assertion(
    page: Page, tmp_path: Path
) -> None:
    """A user publishes, breaks delivery by a fault, sees it, and keeps a test of it."""
    with running() as (_, endpoint):
        console = ConsolePage(page, endpoint)
        rest = console.rest
        rest.create(ackDeadlineSeconds=10)
        page.goto(f"http://{endpoint}/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Map")
        page.get_by_role("link", name="orders", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Topic orders")
        page.get_by_label("Data").fill('{"id": 7}')
        page.get_by_role("button", name="Add an attribute").click()
        page.get_by_label("Attribute name").fill("colour")
        page.get_by_label("Attribute value").fill("red")
        page.get_by_role("button", name="Publish", exact=True).click()
        console.section("Publish").get_by_role("link", name="1", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Message 1 of orders")
        life = page.locator(".timeline li")
        expect(life).to_have_count(1)

        message_page = page.url
        page.get_by_role("link", name="Faults and clock").click()
        page.get_by_label("method").select_option("Acknowledge")
        page.get_by_label("code").select_option("UNAVAILABLE")
        page.get_by_label("times").fill("1")
        page.get_by_role("button", name="Set", exact=True).click()
        expect(console.table("Faults in force").locator("tbody tr")).to_have_count(1)

        # The program under test: its acknowledgement fails, so it receives the message again.
        (received,) = rest.ok("POST", f"{V1_SUBSCRIPTION}:pull", {"maxMessages": 1})[
            "receivedMessages"
        ]
        refused = rest.call(
            "POST", f"{V1_SUBSCRIPTION}:acknowledge", {"ackIds": [received["ackId"]]}
        )
        assert refused.status == 503
        page.get_by_role("button", name="+ 10 s").click()
        expect(page.locator("#notice")).to_contain_text("The clock was advanced by 10 s.")
        (again,) = rest.ok("POST", f"{V1_SUBSCRIPTION}:pull", {"maxMessages": 1})[
            "receivedMessages"
        ]
        rest.ok("POST", f"{V1_SUBSCRIPTION}:acknowledge", {"ackIds": [again["ackId"]]})

        page.goto(message_page)
        expect(life).to_have_count(5)
        expect(life.nth(2)).to_contain_text("ack deadline passed, attempt 1")
        expect(life.nth(3)).to_contain_text("delivered, attempt 2")
        expect(life.nth(4)).to_contain_text("acknowledged")
        test = console.copied("Copy as pytest assertion", "pytest, this broker")
        ran = run_test(tmp_path, test)
        assert ran.returncode == 0, ran.stdout
        # The test depends on the broker's history.
        rest.ok("DELETE", "/v0/events")
        assert run_test(tmp_path, test).returncode == 1


def test_a_pytest_assertion_copied_from_the_console_passes_once_a_user_adds_a_program(
    console: Console, tmp_path: Path
) -> None:
    """The assertion uses pullstream's fixture. The user adds the program."""
    console.rest.create()
    console.emulator.publish(TOPIC, b'"\x00\\', "key", colour="r\"e'd")
    console.open("messages/test/orders/1", "Message 1 of orders")
    text = console.copied("Copy as pytest assertion", "pytest, your program")
    program = f"""    pubsub_emulator.engine.create_topic(pubsub.Topic(name={TOPIC!r}))
    pubsub_emulator.publish({TOPIC!r}, b'"\\x00\\\\', "key", colour="red")"""
    arranged = text.replace("    ...", program)
    imported = "from pullstream_protocol.messages import pubsub_pb2 as pubsub\n"
    ran = run_test(tmp_path, imported + arranged)
    assert ran.returncode == 0, ran.stdout
    assert run_test(tmp_path, text).returncode == 1


# ---- screens -------------------------------------------------------------------------------------


def test_the_console_map_marks_resources_that_need_attention(console: Console) -> None:
    """A new broker shows the first commands. Resources appear without a reload."""
    page = console.open("map", "Map")
    expect(page.get_by_text("pullstream topics create orders")).to_be_visible()
    console.rest.ok("PUT", "/v1/projects/test/topics/failed")
    console.rest.create(deadLetterPolicy={"deadLetterTopic": "projects/test/topics/failed"})
    node = page.locator(".node.subscription")
    expect(node).to_contain_text("no backlog")
    expect(page.locator(".node.topic")).to_have_count(2)
    # A line and its arrow.
    expect(page.locator(".edge.dead")).to_have_count(2)
    console.rest.ok("POST", f"{V1_TOPIC}:publish", {"messages": [{"data": "YQ=="}]})
    expect(node).to_contain_text("1 unacked")
    # The broker's clock makes the message old.
    console.rest.ok("POST", "/v0/admin/clock:advance", {"seconds": 30})
    expect(node).to_contain_text("nobody reads")
    expect(page.get_by_text("1 need attention")).to_be_visible()
    # The rows of the graph have a fixed height, so a long line must not make a node higher.
    height = (
        "each => { each.textContent = 'long '.repeat(50); return each.closest('li').offsetHeight }"
    )
    assert node.locator(".lines div").first.evaluate(height) <= 92
    assert node.locator(".problem").evaluate(height) <= 92


def test_the_console_map_shows_new_deleted_and_changed_resources_live(console: Console) -> None:
    """Of a resource that exists, that is new, and that is gone; the others stay."""
    console.rest.create()
    console.open("map", "Map")
    main = console.page.locator("main")
    expect(main).to_contain_text("1 topics, 1 subscriptions")
    expect(main).to_contain_text("no backlog")
    later = f"{TOPIC}-later"
    console.emulator.inspect(lambda engine: engine.create_topic(pubsub.Topic(name=later)))
    expect(main).to_contain_text("2 topics, 1 subscriptions")
    expect(main).to_contain_text("orders-later")
    console.emulator.publish(TOPIC, "a")
    expect(main).to_contain_text("1 unacked")
    console.emulator.inspect(lambda engine: engine.delete_topic(later))
    expect(main).to_contain_text("1 topics, 1 subscriptions")
    expect(main).not_to_contain_text("orders-later")
    expect(main).to_contain_text("1 unacked")


def test_the_console_shows_new_messages_of_a_topic_live(console: Console) -> None:
    """With Pub/Sub's filter, and with a pause."""
    console.rest.create()
    console.emulator.publish(TOPIC, "one", colour="red")
    console.emulator.publish(TOPIC, "two", colour="blue")
    page = console.open("topics/test/orders", "Topic orders")
    rows = console.table("Messages, the newest first").locator("tbody tr")
    expect(rows).to_have_count(2)
    console.emulator.publish(TOPIC, "three", colour="red")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("three")
    page.get_by_label("Filter").fill('attributes.colour = "red"')
    page.get_by_role("button", name="Apply").click()
    expect(rows).to_have_count(2)
    assert "filter=" in page.url
    page.reload()
    expect(rows).to_have_count(2)
    console.emulator.publish(TOPIC, "four", colour="blue")
    console.emulator.publish(TOPIC, "five", colour="red")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Pause").click()
    console.emulator.publish(TOPIC, "six", colour="red")
    expect(page.get_by_text("paused, 1 new")).to_be_visible()
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Continue").click()
    expect(rows.first).to_contain_text("six")
    page.get_by_label("Filter").fill("colour")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert").filter(has_text="ilter")).to_be_visible()


def test_the_console_republishes_an_earlier_message(console: Console) -> None:
    """With its attributes and key, and more than once. The same as commands."""
    console.rest.create()
    console.emulator.publish(TOPIC, "it's one", "key", colour="red")
    page = console.open("topics/test/orders", "Topic orders")
    page.get_by_role("button", name="Use again").click()
    expect(page.get_by_label("Data")).to_have_value("it's one")
    page.get_by_label("Copies").fill("3")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("Published 3 messages")).to_be_visible()
    published = console.emulator.messages(TOPIC)
    assert len(published) == 4
    for message in published:
        assert (message.data, message.ordering_key) == (b"it's one", "key")
        assert dict(message.attributes) == {"colour": "red"}
    page.get_by_label("Copies").fill("1")
    command = console.copied("Copy as command", "curl")
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert console.emulator.messages(TOPIC)[-1].data == b"it's one"
    program = console.copied("Copy as command", "Python")
    ran = run_command([sys.executable, "-c", program], check=True)
    assert ran.stdout == "['6']\n"
    assert console.emulator.messages(TOPIC)[-1].ordering_key == "key"
    assert "gcloud pubsub topics publish orders" in console.copied("Copy as command", "gcloud")


def test_the_console_validates_and_decodes_messages_by_the_schema_of_their_topic(
    console: Console,
) -> None:
    """The publish form refuses a message that does not match the schema."""
    schema = {"type": "AVRO", "definition": json.dumps(ORDER)}
    console.rest.ok("POST", "/v1/projects/test/schemas?schemaId=order", schema)
    settings = {"schema": "projects/test/schemas/order", "encoding": "JSON"}
    console.rest.ok("PUT", V1_TOPIC, {"schemaSettings": settings})
    page = console.open("topics/test/orders", "Topic orders")
    page.get_by_label("Data").fill('{"id": 7}')
    page.get_by_role("button", name="Check against the schema").click()
    expect(page.locator("#notice")).to_contain_text("schema validation")
    page.get_by_label("Data").fill('{"id": 7, "item": "book"}')
    page.get_by_role("button", name="Check against the schema").click()
    expect(page.locator("#notice")).to_have_text("The message matches the schema.")
    assert console.emulator.messages(TOPIC) == []
    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_role("link", name="1", exact=True).first.click()
    expect(page.locator("pre.code")).to_have_text('{\n  "id": 7,\n  "item": "book"\n}')
    page.get_by_role("button", name="hex").click()
    expect(page.locator("pre.code")).to_contain_text("7b 22 69 64")


def test_the_console_indents_json_message_data_without_rounding_its_numbers(
    console: Console,
) -> None:
    """A browser's own numbers would be rounded."""
    console.rest.create()
    console.emulator.publish(
        TOPIC, '{"n":12345678901234567891,"s":"a{,\\"}","e":[],"o":{},"l":[1.00,null]}'
    )
    page = console.open("messages/test/orders/1", "Message 1 of orders")
    expect(page.locator("pre.code")).to_have_text(
        '{\n  "n": 12345678901234567891,\n  "s": "a{,\\"}",\n  "e": [],\n  "o": {},\n'
        '  "l": [\n    1.00,\n    null\n  ]\n}'
    )


def watch_freezes(page: Page) -> None:
    """Measure in the page how long it does not answer: `window.longest`, in milliseconds."""
    page.evaluate(
        """() => {
            window.longest = 0;
            let before = performance.now();
            setInterval(() => {
                const now = performance.now();
                window.longest = Math.max(window.longest, now - before - 20);
                before = now;
            }, 20);
        }"""
    )


LARGE = '{"rows": [' + ", ".join(f'{{"id": {number}}}' for number in range(600_000)) + "]}"


@pytest.mark.parametrize(
    ("data", "forms"),
    [
        (LARGE.encode()[:9_000_000], ["JSON", "text", "hex"]),
        (b"\xff" * 9_000_000, ["hex"]),
        ("ä".encode() * 4_500_000, ["text", "hex"]),
    ],
    ids=["json", "binary", "text"],
)
def test_a_large_message_does_not_freeze_the_console(
    console: Console, data: bytes, forms: list[str]
) -> None:
    """The page shows the first 64 KiB, and more on request."""
    console.rest.create()
    console.emulator.publish(TOPIC, data)
    page = console.open("map", "Map")
    watch_freezes(page)
    page.evaluate("location.hash = '#/messages/test/orders/1'")
    code = page.locator("pre.code")
    expect(code).to_be_visible()
    tabs = page.get_by_role("group", name="Form of the data").get_by_role("button")
    expect(tabs).to_have_text(forms)
    for form in forms:
        tabs.get_by_text(form, exact=True).click()
        expect(page.get_by_text("The first 64 KiB of 8.6 MiB.")).to_be_visible()
        first = len(code.inner_text())
        page.get_by_role("button", name="More").click()
        expect(page.get_by_text("of 8.6 MiB.")).not_to_contain_text("The first 64 KiB")
        assert first < len(code.inner_text()) < 1_500_000
        page.reload()
        watch_freezes(page)
    page.get_by_role("button", name="Copy as publish command").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text("more characters")
    dialog.get_by_role("button", name="Python", exact=True).click()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("link", name="Publish again").click()
    field = page.get_by_label("Data", exact=True)
    expect(field).to_have_value("(8.6 MiB of data, published as it is)")
    # On a quiet machine it is less than 200 ms. It was 25 s for 3 MB of JSON.
    assert page.evaluate("window.longest") < 3000


def test_a_console_url_with_bad_percent_encoding_shows_a_not_found_page(console: Console) -> None:
    problems: list[str] = []
    console.page.on("pageerror", lambda error: problems.append(str(error)))
    page = console.open("map", "Map")
    for address in ("#/%E0%A4%A", "#/topics/test/%", "#/messages/%ff/orders/1"):
        page.evaluate(f"location.hash = {json.dumps(address)}")
        expect(page.locator("main .error")).to_be_visible()
        page.evaluate("location.hash = '#/map'")
        expect(page.get_by_role("heading", level=1)).to_have_text("Map")
    assert problems == []


def test_the_console_can_peek_pull_ack_seek_and_purge_a_subscription(console: Console) -> None:
    """Peek without a lease, pull, nack, ack, seek to a snapshot, purge."""
    console.rest.create()
    for number in range(3):
        console.emulator.publish(TOPIC, f"m{number}", colour="red" if number else "blue")
    page = console.open("subscriptions/test/billing", "Subscription billing")
    rows = console.table("Unacknowledged messages, the oldest first").locator("tbody tr")
    expect(rows).to_have_count(3)
    assert console.emulator.history.deliveries() == []
    page.get_by_label("New snapshot").fill("before")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.locator("select[name=snapshot]")).to_have_value(re.compile("/snapshots/before$"))
    page.get_by_label("Test a filter").fill('attributes.colour = "red"')
    page.get_by_role("button", name="Apply").click()
    expect(rows).to_have_count(2)
    page.get_by_label("Test a filter").fill("")
    page.get_by_role("button", name="Apply").click()

    page.get_by_label("Pull", exact=True).fill("2")
    page.get_by_role("button", name="Pull", exact=True).click()
    held = console.table("Messages that this page has pulled").locator("tbody tr")
    expect(held).to_have_count(2)
    expect(rows.first).to_contain_text("leased")
    held.first.get_by_role("button", name="Ack", exact=True).click()
    expect(rows).to_have_count(2)
    held.first.get_by_role("button", name="Nack").click()
    expect(held).to_have_count(0)
    expect(rows.first).to_contain_text("waiting")
    assert len(console.emulator.history.nacks()) == len(console.emulator.history.acks()) == 1

    page.get_by_role("button", name="Seek to the snapshot").click()
    expect(rows).to_have_count(3)
    page.get_by_role("button", name="Purge").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert console.emulator.backlog("billing") == 3
    page.get_by_role("button", name="Purge").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(page.get_by_text("There is no unacknowledged message.")).to_be_visible()
    assert console.emulator.backlog("billing") == 0


def test_the_console_shows_connected_clients_with_their_flow_control_limits(
    console: Console,
) -> None:
    """A client that holds as much as it wants is full."""
    console.rest.create()
    release = threading.Event()
    with SubscriberClient(endpoint=console.emulator.endpoint) as client:

        def callback(message: Message) -> None:
            release.wait(TIMEOUT / 1000)
            message.ack()

        future = client.subscribe(SUBSCRIPTION, callback)
        console.emulator.publish(TOPIC, "a")
        console.open("subscriptions/test/billing", "Subscription billing")
        row = console.table("Clients").locator("tbody tr")
        expect(row).to_contain_text("stream")
        expect(row).to_contain_text("has room")
        expect(row).to_contain_text("1, ")
        release.set()
        future.cancel()
        future.result()
    expect(console.page.get_by_text("No client receives messages now.")).to_be_visible()


FAILED, V1_FAILED = "projects/test/topics/failed", "/v1/projects/test/topics/failed"
PARKED = "projects/test/subscriptions/parked"


def test_the_console_shows_dead_letters_with_reasons_and_resends_them(
    console: Console, wire: Wire
) -> None:
    """The page shows the stored copies. Resending acknowledges them, so nothing comes twice."""
    console.rest.ok("PUT", V1_FAILED)
    console.rest.create(deadLetterPolicy={"deadLetterTopic": FAILED, "maxDeliveryAttempts": 5})
    page = console.open("dead-letters", "Dead letters")
    expect(page.get_by_text("No dead letter is stored.")).to_be_visible()
    expect(page.locator("main .error")).to_contain_text(f"{FAILED} has no subscription")
    console.rest.ok("PUT", f"/v1/{PARKED}", {"topic": FAILED})
    expect(page.locator("main .error")).to_be_hidden()
    for data in ("poison", "bitter"):
        console.emulator.publish(TOPIC, data, colour="red")
        for _ in range(5):
            wire.modify(0, *(received.ack_id for received in wire.pull()))
    with SubscriberClient(endpoint=console.emulator.endpoint) as client:
        console.emulator.publish(TOPIC, "rejected")
        with client.fetch(SUBSCRIPTION, 1) as (message,):
            message.reject("the price is missing")
    rows = console.table("Dead letters, the oldest first").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("nacked, attempt 5")
    expect(rows.nth(2)).to_contain_text("the price is missing")
    rows.nth(0).get_by_role("link", name="Edit").click()
    expect(page.get_by_label("Data", exact=True)).to_have_value("poison")
    page.go_back()
    rows.nth(0).get_by_role("button", name="Resend").click()
    expect(page.locator("#notice")).to_contain_text("was published to orders as 4")
    expect(rows).to_have_count(2)
    assert console.emulator.messages(TOPIC)[-1].attributes == {"colour": "red"}
    page.get_by_role("button", name="Resend all").click()
    page.get_by_role("dialog").get_by_role("button", name="Resend").click()
    expect(page.locator("#notice")).to_contain_text("2 messages were published again")
    expect(page.get_by_text("No dead letter is stored.")).to_be_visible()
    assert console.emulator.backlog(PARKED) == 0
    assert [message.data for message in console.emulator.messages(TOPIC)[3:]] == [
        b"poison",
        b"bitter",
        b"rejected",
    ]


def test_the_console_lists_push_requests_with_the_answers_of_the_endpoint(console: Console) -> None:
    """A refused push comes again."""
    with Endpoint() as endpoint:
        answers = iter([503])
        endpoint.answer = lambda pushed: next(answers, 200)
        console.rest.create(pushConfig={"pushEndpoint": endpoint.url()})
        console.emulator.publish(TOPIC, "a")
        console.open("push", "Push log")
        rows = console.table("Answers, the newest first").locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.nth(1)).to_contain_text("503 Service Unavailable")
        expect(rows.nth(0)).to_contain_text("200 OK")
        rows.nth(0).get_by_role("link", name="1", exact=True).click()
        life = console.page.locator(".timeline")
        expect(life).to_contain_text("endpoint answered: 503 Service Unavailable")


def test_the_console_creates_commits_and_rolls_back_schema_revisions(console: Console) -> None:
    """Create one, commit a revision, check a message, roll back."""
    page = console.open("schemas", "Schemas")
    form = console.section("Create a schema")
    form.get_by_label("Project").fill("test")
    form.get_by_label("Name").fill("order")
    form.get_by_label("Definition").fill(json.dumps(ORDER))
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Schema order")
    newer = {
        **ORDER,
        "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}],
    }
    console.section("Commit a revision").get_by_label("Definition").fill(json.dumps(newer))
    page.get_by_role("button", name="Commit").click()
    expect(page.get_by_text(re.compile("^Revision "))).to_have_count(2)
    check = console.section("Check a message")
    check.get_by_label("Message in JSON").fill('{"id": 1, "item": "a", "note": ""}')
    check.get_by_role("button", name="Check").click()
    expect(page.locator("#notice")).to_have_text("The message matches the schema.")
    page.get_by_text(re.compile("^Revision ")).nth(1).click()
    page.get_by_role("button", name="Roll back to this revision").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.get_by_text(re.compile("^Revision "))).to_have_count(3)
    listed = console.rest.ok("GET", "/v1/projects/test/schemas/order:listRevisions")["schemas"]
    assert len(listed) == 3


def test_the_console_shows_the_record_range_and_the_routers_of_a_feed(console: Console) -> None:
    """A limit of records makes the window move."""
    console.rest.call("PUT", "/v0/topics/clicks?project=test", {"cap_records": 3})
    console.rest.call("PUT", "/v0/topics/archive?project=test", {})
    body = {"source": "clicks", "dest": "archive"}
    console.rest.call("PUT", "/v0/routers/copy?project=test", body)
    for number in range(5):
        console.rest.ok("POST", "/v0/topics/clicks?project=test", {"records": [{"data": number}]})
    console.open("feeds", "Feeds")
    row = console.table("Feeds").locator("tbody tr").filter(has_text="clicks")
    expect(row).to_contain_text("3 to 5")
    router = console.table("Routers").locator("tbody tr")
    expect(router).to_contain_text("caught up")
    expect(router).to_contain_text("5, ")


def test_the_console_shows_channels_with_their_subscribers(console: Console, wire: Wire) -> None:
    """The rows have keys and mailboxes."""
    console.rest.create()
    request = channels.CommandsRequest(
        subscriber_id="reader-1",
        batch_no=1,
        replace=True,
        commands=[channels.Command(channel=TOPIC, key="k", subscribe=True)],
    )
    wire.call("Commands", request)
    console.emulator.publish(TOPIC, "a", "k")
    console.open("channels", "Channels")
    row = console.table("Subscribers").locator("tbody tr")
    expect(row).to_contain_text("reader-1")
    expect(row).to_contain_text("1 messages")


def test_faults_and_clock_advances_set_in_the_console_take_effect(
    console: Console, wire: Wire
) -> None:
    """Hits are counted. An advanced clock ends a lease."""
    console.rest.create(ackDeadlineSeconds=600)
    console.emulator.publish(TOPIC, "a")
    page = console.open("faults", "Faults and clock")
    page.get_by_label("kind").select_option("delay")
    expect(page.get_by_label("code")).to_be_hidden()
    page.get_by_label("method").select_option("Pull")
    page.get_by_label("seconds", exact=True).fill("0.01")
    page.get_by_role("button", name="Set", exact=True).click()
    row = console.table("Faults in force").locator("tbody tr")
    expect(row).to_contain_text("delay")
    wire.pull()
    expect(row.locator("td.number")).to_have_text("1")
    row.get_by_role("button", name="Lift").click()
    expect(page.get_by_text("No fault is in force.")).to_be_visible()
    page.get_by_label("Seconds", exact=True).fill("600")
    page.get_by_role("button", name="Advance").click()
    advanced = "The clock was advanced by 600 s. 1 leases ended."
    expect(page.locator("#notice")).to_have_text(advanced)
    assert len(console.emulator.history.expiries()) == 1


# ---- everywhere ----------------------------------------------------------------------------------


def test_the_console_search_box_finds_resources_and_messages(console: Console) -> None:
    """The key `/` leads to it. A result can be shared as a link."""
    console.rest.create()
    console.emulator.publish(TOPIC, "a rare book", "customer-7")
    page = console.open("map", "Map")
    page.keyboard.press("/")
    page.keyboard.type("rare book")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Search for “rare book”")
    expect(console.table("Messages").locator("tbody tr")).to_have_count(1)
    console.open("search?q=bill", "Search for “bill”")
    console.table("Resources").get_by_role("link", name="billing").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Subscription billing")


def test_the_console_shows_only_resources_of_the_selected_project(console: Console) -> None:
    """The choice is part of the link."""
    console.rest.create()
    console.rest.ok("PUT", "/v1/projects/other/topics/news")
    page = console.open("map", "Map")
    expect(page.locator(".node")).to_have_count(3)
    page.get_by_label("Project").select_option("other")
    expect(page.locator(".node")).to_have_count(1)
    page.reload()
    expect(page.locator(".node")).to_have_count(1)
    page.get_by_role("link", name="Messages").click()
    assert "project=other" in page.url


def test_the_console_asks_for_a_token_and_shows_the_projects_of_its_principal(
    browser: Browser,
) -> None:
    """The token is in no address, and not kept after the tab."""
    tokens = {"secret": Principal("ci", frozenset({"test"})), "all": Principal("operator")}
    with Emulator(rest=True, access=Access(tokens)) as emulator:
        rest = RestClient(emulator.endpoint)
        for project in ("test", "other"):
            rest.call("PUT", f"/v1/projects/{project}/topics/orders", Authorization="Bearer all")
        with opened(browser, []) as page:
            page.goto(f"http://{emulator.endpoint}/console/")
            dialog = page.get_by_role("dialog", name="Token")
            dialog.get_by_label("Token").fill("wrong")
            dialog.get_by_role("button", name="Open").click()
            expect(dialog).to_contain_text("The broker refused this token.")
            dialog.get_by_label("Token").fill("secret")
            dialog.get_by_role("button", name="Open").click()
            expect(page.locator(".node")).to_have_count(1)
            expect(page.get_by_label("Project").locator("option")).to_have_text(["all", "test"])
            assert "secret" not in page.url
            page.goto(f"http://{emulator.endpoint}/console/#/faults")
            expect(page.get_by_text("User not authorized")).to_be_visible()
        with opened(browser, []) as page:
            page.goto(f"http://{emulator.endpoint}/console/")
            expect(page.get_by_role("dialog", name="Token")).to_be_visible()


@pytest.mark.parametrize(
    "screen",
    ["topics/test/orders", "subscriptions/test/billing", "dead-letters", "schemas", "faults"],
)
def test_a_read_only_console_shows_no_buttons_for_changes(browser: Browser, screen: str) -> None:
    """The console shows everything nevertheless."""
    harmless = {"Pause", "Apply", "Copy as command", "◐"}
    with Emulator(rest=Rest(console="read-only")) as emulator, opened(browser, []) as page:
        RestClient(emulator.endpoint).create()
        emulator.publish(TOPIC, "a")
        page.goto(f"http://{emulator.endpoint}/console/#/{screen}")
        expect(page.locator("#connection")).to_have_text("live")
        assert set(page.get_by_role("button").all_inner_texts()) <= harmless


def test_the_console_reconnects_after_a_broker_restart(console: Console) -> None:
    """And shows the new broker."""
    page = console.open("map", "Map")
    console.emulator.stop()
    expect(page.locator("#connection")).to_have_text("not connected")
    with Emulator(rest=True, port=console.emulator.port) as again:
        RestClient(again.endpoint).create()
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator(".node")).to_have_count(2)


def test_a_thousand_published_messages_a_second_do_not_freeze_the_console(console: Console) -> None:
    """The stream skips and counts most events. The page answers in the meantime."""
    console.rest.create()
    page = console.open("topics/test/orders", "Topic orders")
    watch_freezes(page)
    stop = threading.Event()

    def publish() -> None:
        messages = [{"data": "eA=="}] * 100
        while not stop.wait(0.1):
            console.rest.ok("POST", f"{V1_TOPIC}:publish", {"messages": messages})

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        expect(page.get_by_text(re.compile(r"\d not shown"))).to_be_visible()
        for number in range(100):
            page.get_by_label("Text").fill(f"x{number}")
            page.wait_for_timeout(20)
        assert page.evaluate("window.longest") < 1000
        assert page.locator("table tbody tr").count() <= 103
    finally:
        stop.set()
        publisher.join()


def test_console_screens_are_accessible_to_screen_readers(console: Console) -> None:
    """axe-core has no serious finding, in light and in dark."""
    from axe_playwright_python.sync_playwright import Axe

    console.rest.create()
    console.emulator.publish(TOPIC, "a", colour="red")
    schema = {"type": "AVRO", "definition": json.dumps(ORDER)}
    console.rest.ok("POST", "/v1/projects/test/schemas?schemaId=order", schema)
    console.rest.ok("POST", "/v0/admin/faults", {"fault": "delay:Seek:0.1"})
    screens = {
        "map": "Map",
        "messages": "Messages",
        "messages/test/orders/1": "Message 1 of orders",
        "topics/test/orders": "Topic orders",
        "subscriptions/test/billing": "Subscription billing",
        "dead-letters": "Dead letters",
        "push": "Push log",
        "schemas": "Schemas",
        "schemas/test/order": "Schema order",
        "feeds": "Feeds",
        "channels": "Channels",
        "faults": "Faults and clock",
        "search?q=orders": "Search for “orders”",
    }
    found: dict[str, list[str]] = {}
    for scheme in ("light", "dark"):
        console.page.emulate_media(color_scheme=scheme)
        for screen, title in screens.items():
            page = console.open(screen, title)
            violations = Axe().run(page).response["violations"]
            serious = [
                f"{each['id']}: {each['nodes'][0]['html']}"
                for each in violations
                if each["impact"] in ("serious", "critical")
            ]
            if serious:
                found[f"{screen} {scheme}"] = serious
    assert found == {}
