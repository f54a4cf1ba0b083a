"""google-cloud-pubsub for Python: policies are stored, and every permission is granted."""

from __future__ import annotations

import pytest
from google.api_core import exceptions

from pullstream_emulator.pytest_plugin import pubsub_emulator as pubsub_emulator
from tests.interop.google_python import PROJECT, SUBSCRIPTION, TOPIC, Clients, Connect
from tests.interop.google_python import connect as connect

SNAPSHOT = f"{PROJECT}/snapshots/before"
MEMBERS = ["user:somebody@example.com"]


@pytest.fixture
def clients(connect: Connect) -> Clients:
    clients = connect()
    clients.subscriber.create_snapshot(name=SNAPSHOT, subscription=SUBSCRIPTION)
    return clients


@pytest.mark.parametrize("resource", [TOPIC, SUBSCRIPTION, SNAPSHOT])
def test_a_google_client_can_set_and_get_the_iam_policy_of_a_resource(
    clients: Clients, resource: str
) -> None:
    """The policy is empty at first, and its etag changes with it."""
    before = clients.publisher.get_iam_policy(request={"resource": resource})
    assert list(before.bindings) == []
    before.bindings.add(role="roles/pubsub.editor", members=MEMBERS)
    written = clients.publisher.set_iam_policy(request={"resource": resource, "policy": before})
    read = clients.publisher.get_iam_policy(request={"resource": resource})
    assert read == written
    assert [(each.role, list(each.members)) for each in read.bindings] == [
        ("roles/pubsub.editor", MEMBERS)
    ]
    assert read.etag != before.etag


def test_a_google_client_cannot_overwrite_an_iam_policy_with_a_stale_etag(clients: Clients) -> None:
    """Two concurrent changes do not overwrite each other."""
    stale = clients.publisher.get_iam_policy(request={"resource": TOPIC})
    fresh = clients.publisher.get_iam_policy(request={"resource": TOPIC})
    fresh.bindings.add(role="roles/pubsub.viewer", members=MEMBERS)
    clients.publisher.set_iam_policy(request={"resource": TOPIC, "policy": fresh})
    with pytest.raises(exceptions.Aborted):
        clients.publisher.set_iam_policy(request={"resource": TOPIC, "policy": stale})


def test_the_broker_grants_a_google_client_every_iam_permission_on_existing_resources(
    clients: Clients,
) -> None:
    """The rule holds for every existing resource."""
    permissions = ["pubsub.topics.publish", "pubsub.topics.delete"]
    request = {"resource": TOPIC, "permissions": permissions}
    granted = clients.publisher.test_iam_permissions(request=request)
    assert list(granted.permissions) == permissions


def test_a_google_client_gets_not_found_for_the_iam_policy_of_a_missing_resource(
    clients: Clients,
) -> None:
    """A policy cannot be set either."""
    resource = f"{PROJECT}/topics/missing"
    with pytest.raises(exceptions.NotFound):
        clients.publisher.get_iam_policy(request={"resource": resource})
    with pytest.raises(exceptions.NotFound):
        clients.publisher.set_iam_policy(request={"resource": resource, "policy": {}})
