"""Fuzz tests of faults, configuration and administration: each input is accepted or refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator import Emulator
from pullstream_emulator.admin import Admin
from pullstream_emulator.config import ConfigError, load, seeds_from_environment
from pullstream_emulator.faults import Faults
from pullstream_emulator.faults.request import KINDS, FaultRequest
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import InvalidArgument, NotFound

KIND_NAMES = st.sampled_from(sorted(KINDS))
FIELDS = st.sampled_from(
    ["kind", "method", "seconds", "code", "message", "responses", "resource", "times", "x"]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["Pull", "Publish", "*", "UNAVAILABLE", "0.5", "3", "1e999", "-0"]),
    st.lists(st.integers(), max_size=2),
)
RESOURCE_FIELDS = st.sampled_from(
    ["name", "topic", "text", "data", "labels", "ackDeadlineSeconds", "retryPolicy", "schema"]
)
SECTIONS = st.sampled_from(["project", "topics", "subscriptions", "messages", "schemas", "more"])


def refusal(kind: type[Exception], action: Callable[[], object]) -> str | None:
    """Return the text of the error of `action`, or None for success."""
    try:
        action()
    except kind as error:
        return str(error)
    return None


@given(KIND_NAMES, st.lists(st.text(alphabet="PullACK:=,.*01 é\0", max_size=8), max_size=4))
def test_any_text_as_fault_description_is_accepted_or_refused_with_a_value_error(
    kind: str, parts: list[str]
) -> None:
    """The only error is ValueError, and then no fault is set."""
    faults = Faults()
    text = ":".join([kind, *parts])
    refused = refusal(ValueError, lambda: FaultRequest.from_text(text).set(faults))
    assert refused is None or (refused and faults.active == ())


@given(st.dictionaries(FIELDS, st.one_of(VALUES, KIND_NAMES), max_size=5))
def test_any_json_as_fault_description_is_accepted_or_refused_with_a_value_error(
    fields: dict[str, Any],
) -> None:
    """The same holds for JSON fields."""
    faults = Faults()
    refused = refusal(ValueError, lambda: FaultRequest.from_json(fields).set(faults))
    assert refused is None or (refused and faults.active == ())


@given(
    st.dictionaries(
        SECTIONS,
        st.one_of(
            VALUES, st.lists(st.dictionaries(RESOURCE_FIELDS, VALUES, max_size=4), max_size=2)
        ),
        max_size=3,
    )
)
def test_any_configuration_file_content_is_accepted_or_refused_with_a_config_error(
    content: dict[str, Any],
) -> None:
    """The only error is ConfigError with the name of the file."""
    refused = refusal(ConfigError, lambda: load(content))
    assert refused is None or refused.startswith("config: ")


@given(st.text(alphabet="ab,:/ \n", max_size=12))
def test_any_project_environment_variable_is_accepted_or_refused_with_a_config_error(
    value: str,
) -> None:
    """The only error is ConfigError with the name of the variable."""
    refused = refusal(ConfigError, lambda: seeds_from_environment({"PUBSUB_PROJECT1": value}))
    assert refused is None or refused.startswith("PUBSUB_PROJECT1: ")


@given(
    st.sampled_from(["GET", "POST", "DELETE", "PUT", "\0"]),
    st.sampled_from(["/faults", "/faults/x", "/clock:advance", "/backlog", "/", ""]),
    st.dictionaries(
        st.sampled_from(["kind", "limit", "message", "resource", "subscription"]),
        st.text(max_size=6),
        max_size=2,
    ),
    st.one_of(
        st.binary(max_size=20),
        st.dictionaries(st.sampled_from(["seconds", "fault", "kind"]), VALUES).map(
            lambda fields: json.dumps(fields).encode()
        ),
    ),
)
def test_any_admin_api_request_is_answered_with_json_or_a_client_error(
    method: str, path: str, query: dict[str, str], body: bytes
) -> None:
    """The answer is JSON, or an error that is the client's."""
    emulator = Emulator(clock=ManualClock())
    admin = Admin(emulator.engine, emulator.clock, emulator.faults)
    with contextlib.suppress(InvalidArgument, NotFound):
        content = admin.answer(method, f"/v0/admin{path}", query, body)
        assert json.loads(json.dumps(content)) == content
