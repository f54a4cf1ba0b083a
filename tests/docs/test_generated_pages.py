"""The generated pages of the documentation are up to date, and true."""

from __future__ import annotations

import http.client
import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

if tuple(sys.version_info) < (3, 11):
    pytest.skip("pullstream.spark needs Python 3.11", allow_module_level=True)

import pullstream
import pullstream.spark
import pullstream_emulator
from docs import generate
from pullstream_emulator import Emulator
from pullstream_emulator.admin import Admin
from pullstream_emulator.faults import Faults
from tests.emulator.wire import TIMEOUT

DOCS = Path(__file__).parents[2] / "docs"


OPENAPI: dict[str, Any] = generate.openapi()
REQUESTS = [(path, verb) for path, verbs in OPENAPI["paths"].items() for verb in verbs]
# These wait for messages, or end the broker.
NOT_TRIED = {"/v0/live", "/shutdown", "/v1/projects/{project}/subscriptions/{subscription}:pull"}


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(rest=True) as emulator:
        yield emulator


@pytest.mark.parametrize("name", sorted(generate.pages()))
def test_every_generated_documentation_page_is_up_to_date(name: str) -> None:
    """`python docs/generate.py` writes it again."""
    assert (DOCS / name).read_text(encoding="utf-8") == generate.pages()[name]


def test_llms_txt_is_up_to_date_and_lists_every_page() -> None:
    """The index page is not listed."""
    text = (DOCS / "llms.txt").read_text(encoding="utf-8")
    assert text == generate.llms_text()
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert pages - set(re.findall(r"\]\(([^)]+)\)", text)) == {"index.md"}


def test_every_public_class_has_an_entry_in_the_generated_reference() -> None:
    """The entries are for Sphinx's autodoc."""
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("reference/python-*.md"))
    documented = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)$", text, re.MULTILINE))
    public = {
        f"{module.__name__}.{name}"
        for module in (pullstream, pullstream.spark, pullstream_emulator)
        for name in module.__all__
    }
    assert public - documented == set()


def test_the_openapi_description_of_the_http_interface_is_valid() -> None:
    """The validator knows the schema of OpenAPI 3.1."""
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(OPENAPI)


@pytest.mark.parametrize(
    ("path", "verb"), [request for request in REQUESTS if request[0] not in NOT_TRIED]
)
def test_the_broker_serves_every_request_of_the_openapi_description(
    emulator: Emulator, path: str, verb: str
) -> None:
    """The broker may refuse the request for its content, but not for its path or its method."""
    concrete = re.sub(r"\{(\w+)\}", r"test-\1", path)
    with closing(http.client.HTTPConnection(emulator.endpoint, timeout=TIMEOUT)) as connection:
        connection.request(verb.upper(), concrete, b"{}" if verb in ("put", "post") else None)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    assert answer.status not in (405, 500)
    unknown = ("Method not found", "There is no endpoint", "There is no administrative request")
    assert not any(each in text for each in unknown)


def test_every_http_route_of_the_broker_is_in_the_openapi_description() -> None:
    """A new route needs a line in docs/generate.py."""
    from pullstream_emulator.rest.events import Events
    from pullstream_emulator.rest.live_status import LiveStatus
    from pullstream_emulator.rest.monitoring import Monitoring
    from pullstream_emulator.rest.subscription_state import SubscriptionStateHandlers

    described = {(verb.upper(), re.sub(r"\{\w+\}", "{}", path)) for path, verb in REQUESTS}
    broker = Emulator().broker
    routes = [
        *Events(broker, None, LiveStatus(broker), lambda may_see: "").routes(),
        *SubscriptionStateHandlers(broker, None).routes(),
        *Monitoring.routes(object.__new__(Monitoring)),
    ]
    served = {(route.method, re.sub(r"\{\w+\}", "{}", route.path)) for route in routes}
    assert served - described == set()
    admin = Admin(broker.engine, broker.clock, Faults(broker.clock))
    administration = {
        (verb, "/v0/admin" + re.sub(r"\(.*\)", "{}", pattern.pattern))
        for verb, pattern, _ in admin._routes
    }
    assert administration - described == set()


def test_the_topic_and_message_schemas_of_openapi_have_the_fields_and_types_of_the_api() -> None:
    """The names are in lowerCamelCase, with the kinds of proto3's JSON."""
    topic = OPENAPI["components"]["schemas"]["Topic"]["properties"]
    assert topic["name"] == {"type": "string"}
    assert topic["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}
    message = OPENAPI["components"]["schemas"]["PubsubMessage"]["properties"]
    assert message["data"] == {"type": "string", "format": "byte"}
    assert message["publishTime"] == {"type": "string", "format": "date-time"}
    assert json.dumps(OPENAPI)
