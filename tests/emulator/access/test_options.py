"""Command-line options of the broker for access control."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream_emulator.access import ALL_PROJECTS, AccessError
from pullstream_emulator.access.options import access_from
from pullstream_protocol.errors import PermissionDenied
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.access.principals import GOOD, written
from tests.emulator.certificates import Identity, new_identity
from tests.emulator.program import ends_well, error_of, running
from tests.emulator.wire import TIMEOUT


@pytest.fixture(scope="module")
def identity() -> Identity:
    return new_identity("broker")


def code(channel: grpc.Channel, project: str, token: str | None) -> str:
    """Return the code with which a call on some project ends."""
    call: Any = channel.unary_unary(BY_METHOD["ListTopics"].path)
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    request = pubsub.ListTopicsRequest(project=f"projects/{project}").SerializeToString()
    outcome = call.future(request, metadata=metadata, timeout=TIMEOUT)
    outcome.exception()
    name: str = outcome.code().name
    return name


def test_a_broker_started_with_tls_and_token_options_checks_tokens_over_tls(
    tmp_path: Path, identity: Identity
) -> None:
    """The broker has a certificate and a key, a token for all projects, and a file for some."""
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
        # On a loopback address there is nothing to warn of.
        ends_well(process)


def test_the_auth_token_of_the_broker_program_may_be_set_by_an_environment_variable() -> None:
    """The list of processes does not show the environment."""
    with (
        running(PULLSTREAM_AUTH_TOKEN="t-one t-two") as (_, address),
        grpc.insecure_channel(address) as channel,
    ):
        assert code(channel, "test", None) == "UNAUTHENTICATED"
        assert code(channel, "test", "t-one") == "OK"
        assert code(channel, "test", "t-two") == "OK"


def test_a_broker_program_on_a_public_address_without_tls_or_tokens_logs_a_warning() -> None:
    """The warning has one line, and the broker serves."""
    with running("--host", "0.0.0.0") as (process, address):
        with grpc.insecure_channel(address) as channel:
            assert code(channel, "test", None) == "OK"
        process.terminate()
        _, errors = process.communicate(timeout=TIMEOUT)
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
def test_an_invalid_access_option_ends_the_broker_program_with_a_one_line_error(
    tmp_path: Path, identity: Identity, arguments: list[str], text: str
) -> None:
    """The error comes before the broker listens. The exit code is 2, as for every bad option."""
    certificate, key = identity.write(tmp_path)
    paths = {"certificate": certificate, "key": key, "none": tmp_path / "none"}
    error = error_of(*(each.format(**paths) for each in arguments), exit_code=2)
    assert text.format(**paths) in error


@pytest.mark.parametrize("value", ["", " ", "\t\n"])
@pytest.mark.parametrize("arguments", [[], ["--auth-token=t-root"]])
def test_an_empty_token_environment_variable_ends_the_broker_program_with_an_error(
    value: str, arguments: list[str]
) -> None:
    """An empty value is a secret that was not filled in.

    Without the error the broker would be open to all.
    """
    error = error_of(*arguments, exit_code=2, PULLSTREAM_AUTH_TOKEN=value)
    assert "PULLSTREAM_AUTH_TOKEN is empty: set it to a token, or unset it" in error


def test_a_duplicate_principal_in_the_auth_file_ends_the_broker_program_with_an_error(
    tmp_path: Path,
) -> None:
    """Only the last entry would count."""
    auth = tmp_path / "auth.yaml"
    entry = "  ci: {tokens: [%s], projects: [test]}\n"
    auth.write_text("principals:\n" + entry % "t-one" + entry % "t-two", encoding="utf-8")
    error = error_of(f"--auth-file={auth}", exit_code=2)
    assert f"{auth}: the key 'ci' is given twice in one table: merge the two" in error
    assert "t-one" not in error


def test_an_empty_auth_file_ends_the_broker_program_with_an_error(tmp_path: Path) -> None:
    auth = tmp_path / "auth.yaml"
    auth.write_text("\n", encoding="utf-8")
    assert f"{auth}: the file is empty" in error_of(f"--auth-file={auth}", exit_code=2)


def test_tokens_of_the_command_line_and_of_an_auth_file_are_accepted_together(
    tmp_path: Path,
) -> None:
    """Tokens of the command line allow everything. Tokens of the file allow what the file says."""
    access = access_from(["t-admin"], written(tmp_path, GOOD))
    assert access is not None
    access.check("Bearer t-admin", ALL_PROJECTS)
    access.check("Bearer t-ci", "test")
    with pytest.raises(PermissionDenied):
        access.check("Bearer t-ci", "prod")


def test_the_broker_refuses_a_token_given_on_the_command_line_and_in_the_auth_file(
    tmp_path: Path,
) -> None:
    """One token cannot be both, because a principal with few projects would get access to all."""
    with pytest.raises(AccessError, match=r"auth\.json: one of its tokens is also") as refused:
        access_from(["t-ci"], written(tmp_path, GOOD))
    assert "t-ci" not in str(refused.value)


def test_a_broker_without_access_options_checks_no_tokens() -> None:
    """There is no object that could make calls slower."""
    assert access_from([], None) is None


@pytest.mark.parametrize("token", ["", "  "])
def test_the_broker_program_refuses_an_empty_auth_token_option(token: str) -> None:
    """The token may come from a variable that was not set."""
    with pytest.raises(AccessError, match="must not be empty"):
        access_from(["good", token], None)
