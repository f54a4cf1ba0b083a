"""Who may come in, as the command line of the broker has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from protocol.messages import pubsub_pb2 as pubsub
from protocol.rpcs import BY_METHOD
from tests.emulator.certificates import Identity, new_identity
from tests.emulator.program import ends_well, error_of, running
from tests.emulator.wire import PATIENCE


@pytest.fixture(scope="module")
def identity() -> Identity:
    return new_identity("broker")


def code(channel: grpc.Channel, project: str, token: str | None) -> str:
    """How a call on some project ends."""
    call: Any = channel.unary_unary(BY_METHOD["ListTopics"].path)
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    request = pubsub.ListTopicsRequest(project=f"projects/{project}").SerializeToString()
    outcome = call.future(request, metadata=metadata, timeout=PATIENCE)
    outcome.exception()
    name: str = outcome.code().name
    return name


def test_tls_and_tokens_together(tmp_path: Path, identity: Identity) -> None:
    """Certificate and key, a token for all, and a file for some."""
    certificate, key = identity.write(tmp_path)
    auth = tmp_path / "auth.json"
    entry = {"tokens": ["t-ci"], "projects": ["test"]}
    auth.write_text(json.dumps({"principals": {"ci": entry}}), encoding="utf-8")
    options = [f"--tls-cert={certificate}", f"--tls-key={key}", "--auth-token=t-root"]
    with running(*options, f"--auth-file={auth}") as (process, address):
        trusting = grpc.ssl_channel_credentials(identity.certificate)
        with grpc.secure_channel(address, trusting) as channel:
            assert code(channel, "test", None) == "UNAUTHENTICATED"
            assert code(channel, "test", "t-ci") == "OK"
            assert code(channel, "other", "t-ci") == "PERMISSION_DENIED"
            assert code(channel, "other", "t-root") == "OK"
        # On this machine there is nothing to warn of.
        ends_well(process)


def test_a_token_may_come_from_the_environment() -> None:
    """Where the list of processes does not show it."""
    with (
        running(PULLSTREAM_AUTH_TOKEN="t-one t-two") as (_, address),
        grpc.insecure_channel(address) as channel,
    ):
        assert code(channel, "test", None) == "UNAUTHENTICATED"
        assert code(channel, "test", "t-one") == "OK"
        assert code(channel, "test", "t-two") == "OK"


def test_an_open_broker_on_a_public_address_is_warned_of() -> None:
    """In one line, and it serves."""
    with running("--host", "0.0.0.0") as (process, address):
        with grpc.insecure_channel(address) as channel:
            assert code(channel, "test", None) == "OK"
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE)
    assert errors.startswith("WARNING listening on 0.0.0.0, not only on this machine: without TLS")
    assert "without tokens" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--tls-cert", "{certificate}"], "TLS needs both a certificate and its key"),
        (["--tls-cert", "{none}", "--tls-key", "{key}"], "No such file or directory: {none}"),
        (["--auth-token", ""], "a token must not be empty"),
        (["--auth-file", "{none}"], "{none}: No such file or directory"),
    ],
)
def test_one_line_says_what_is_wrong(
    tmp_path: Path, identity: Identity, arguments: list[str], text: str
) -> None:
    """Before anything listens; the exit code is 1."""
    certificate, key = identity.write(tmp_path)
    paths = {"certificate": certificate, "key": key, "none": tmp_path / "none"}
    assert text.format(**paths) in error_of(*(each.format(**paths) for each in arguments))
