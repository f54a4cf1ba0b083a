"""Access control with tokens, principals and projects, and the texts of refusals."""

from __future__ import annotations

import logging

import pytest

from pullstream_emulator.access import ALL_PROJECTS, Access, Principal
from pullstream_emulator.access.options import access_from
from pullstream_protocol.errors import PermissionDenied, Unauthenticated
from tests.emulator.access.principals import CI, ROOT, new_access


@pytest.fixture
def access() -> Access:
    return new_access()


@pytest.mark.parametrize(
    ("header", "principal"),
    [("Bearer t-ci", CI), ("bearer t-ci-2", CI), ("Bearer  t-root ", ROOT)],
)
def test_a_bearer_token_identifies_the_principal_that_calls_the_broker(
    access: Access, header: str, principal: Principal
) -> None:
    """The token is in the header that every client uses."""
    assert access.authenticate(header) is principal


@pytest.mark.parametrize("header", [None, ""])
def test_a_grpc_call_without_a_token_is_refused(access: Access, header: str | None) -> None:
    """The error says that the token is missing."""
    with pytest.raises(Unauthenticated, match="missing required authentication"):
        access.authenticate(header)


@pytest.mark.parametrize(
    "header",
    [
        *("Bearer", "Bearer ", "Bearer t-c", "Bearer t-ci3", "Bearer T-CI", "Bearer t-ci t-ci"),
        *("t-ci", "Basic t-ci", "Bearer \udcff", "Bearer ü"),
    ],
)
def test_a_grpc_call_with_an_unknown_token_is_refused(access: Access, header: str) -> None:
    """The error text is the same for all wrong tokens, and contains no token."""
    with pytest.raises(Unauthenticated) as refused:
        access.authenticate(header)
    assert refused.value.message == "Request had invalid authentication credentials."


@pytest.mark.parametrize("projects", [(), ("test",), ("test", "dev")])
def test_a_principal_may_access_the_projects_that_the_auth_file_grants(
    access: Access, projects: tuple[str, ...]
) -> None:
    """One call may name several of them."""
    access.check("Bearer t-ci", *projects)


@pytest.mark.parametrize(
    "projects", [("prod",), ("test", "prod"), ("TEST",), ("",), (ALL_PROJECTS,)]
)
def test_a_principal_may_not_access_projects_that_the_auth_file_does_not_grant(
    access: Access, projects: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the reason; the caller does not get it."""
    with (
        caplog.at_level(logging.INFO, "pullstream.emulator"),
        pytest.raises(PermissionDenied) as refused,
    ):
        access.check("Bearer t-ci", *projects)
    assert refused.value.message == "User not authorized to perform this action."
    assert caplog.messages == [f"ci was refused access to: {', '.join(projects)}"]


def test_auth_tokens_given_without_an_auth_file_give_access_to_all_projects() -> None:
    """The access includes operations on the whole broker."""
    access = access_from(["one", "two"], None)
    assert access is not None
    access.check("Bearer one", "any", "other")
    access.check("Bearer two", ALL_PROJECTS)
    with pytest.raises(Unauthenticated):
        access.check("Bearer three", "any")
