"""SchemaServiceClient has the methods and keywords of the official client."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pullstream import SchemaServiceClient

official: Any = pytest.importorskip("google.cloud.pubsub_v1").SchemaServiceClient

METHODS = [name for name in vars(SchemaServiceClient) if "schema" in name or "message" in name]


def keywords(method: Any) -> set[str]:
    """Return the parameters of a method without the ones that all calls share."""
    shared = {"self", "retry", "timeout", "metadata", "options"}
    return set(inspect.signature(method).parameters) - shared


def test_the_schema_client_has_every_method_of_the_official_schema_client() -> None:
    """Methods of other services, such as IAM, do not count."""
    calls = {
        name
        for name in dir(official)
        if name.endswith(("_schema", "_schemas", "_schema_revisions", "_schema_revision"))
    }
    assert calls | {"validate_message"} == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_schema_client_methods_accept_the_keywords_of_the_official_schema_client(name: str) -> None:
    """A deprecated keyword is missing: the revision is part of the name."""
    theirs = keywords(getattr(official, name))
    if name == "delete_schema_revision":
        theirs.remove("revision_id")
    assert keywords(getattr(SchemaServiceClient, name)) == theirs
