"""IAM policies: storage, etags, and permissions, which are always granted."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from pullstream_emulator.engine.observer import Resource
from pullstream_emulator.services.iam_policies import MAX_MEMBERS, IamPolicies
from pullstream_protocol.errors import Aborted, InvalidArgument, NotFound
from pullstream_protocol.messages import iam_pb2 as iam
from tests.emulator.broker import SavedResources

TOPIC = "projects/test/topics/orders"
THERE = {
    TOPIC,
    "projects/test/subscriptions/billing",
    "projects/test/snapshots/monday",
    "projects/test/schemas/states",
}
VIEWER = iam.Binding(role="roles/pubsub.viewer", members=["group:cloud-logs@google.com"])
PUBLISHER = iam.Binding(role="roles/pubsub.publisher", members=["allUsers"])


@pytest.fixture
def notes() -> SavedResources:
    return SavedResources(Resource.POLICY)


@pytest.fixture
def policies(notes: SavedResources) -> IamPolicies:
    return IamPolicies(exists=THERE.__contains__, observer=notes)


def get(policies: IamPolicies, resource: str = TOPIC) -> iam.Policy:
    return policies.get(iam.GetIamPolicyRequest(resource=resource))


def put(policies: IamPolicies, policy: iam.Policy, resource: str = TOPIC) -> iam.Policy:
    return policies.set(iam.SetIamPolicyRequest(resource=resource, policy=policy))


@pytest.mark.parametrize("resource", sorted(THERE))
def test_get_iam_policy_returns_an_empty_policy_with_a_default_etag_before_one_is_set(
    policies: IamPolicies, resource: str
) -> None:
    """For every kind of resource the etag is that of the service."""
    policy = get(policies, resource)
    assert base64.b64encode(policy.etag) == b"ACAB"
    assert policy == iam.Policy(etag=policy.etag)


def test_get_iam_policy_returns_the_policy_that_was_set(policies: IamPolicies) -> None:
    """Only the etag is changed by the broker."""
    policy = iam.Policy(
        version=1,
        bindings=[VIEWER, PUBLISHER],
        audit_configs=[iam.AuditConfig(service="allServices")],
    )
    told = put(policies, policy)
    assert told == get(policies)
    policy.etag = told.etag
    assert told == policy
    assert get(policies, "projects/test/schemas/states").bindings == []


def test_changing_the_result_of_an_iam_policy_call_does_not_change_the_stored_policy(
    policies: IamPolicies,
) -> None:
    """A change of the returned object does not affect the broker."""
    put(policies, iam.Policy(bindings=[VIEWER])).bindings.append(PUBLISHER)
    get(policies).bindings.append(PUBLISHER)
    assert list(get(policies).bindings) == [VIEWER]


def test_setting_an_iam_policy_with_a_stale_etag_is_refused(policies: IamPolicies) -> None:
    """Of two clients that read and write, the second must read again."""
    first, second = get(policies), get(policies)
    first.bindings.append(VIEWER)
    put(policies, first)
    second.bindings.append(PUBLISHER)
    with pytest.raises(Aborted, match="There were concurrent policy changes"):
        put(policies, second)
    assert list(get(policies).bindings) == [VIEWER]


def test_setting_an_iam_policy_gives_the_policy_a_new_etag(policies: IamPolicies) -> None:
    """The rule includes a write without a change, and one that restores an earlier policy."""
    etags = {get(policies).etag}
    for bindings in ([VIEWER], [VIEWER], [], [VIEWER]):
        etags.add(put(policies, iam.Policy(bindings=bindings)).etag)
    assert len(etags) == 5


def test_setting_an_iam_policy_without_an_etag_overwrites_the_stored_policy(
    policies: IamPolicies,
) -> None:
    """The broker does not check for concurrent changes."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    put(policies, iam.Policy(bindings=[PUBLISHER]))
    assert list(get(policies).bindings) == [PUBLISHER]


def test_setting_an_iam_policy_with_an_update_mask_replaces_only_the_fields_in_the_mask(
    policies: IamPolicies,
) -> None:
    """The other fields stay."""
    put(policies, iam.Policy(version=1, bindings=[VIEWER]))
    request = iam.SetIamPolicyRequest(resource=TOPIC, policy=iam.Policy(bindings=[PUBLISHER]))
    request.update_mask.paths.extend(["bindings", "etag"])
    changed = policies.set(request)
    assert (changed.version, list(changed.bindings)) == (1, [PUBLISHER])
    request.update_mask.paths.append("nonsense")
    with pytest.raises(InvalidArgument, match="'nonsense' is not a field of Policy"):
        policies.set(request)
    assert get(policies) == changed


def conditional(version: int) -> iam.Policy:
    binding = iam.Binding(role="roles/pubsub.viewer")
    binding.condition.expression = "false"
    return iam.Policy(version=version, bindings=[binding])


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (iam.Policy(version=2), "policy.version: 2 is not one of 0, 1 and 3"),
        (conditional(1), "a policy with conditions must have version 3"),
        (iam.Policy(bindings=[iam.Binding(role="owner")]), "'owner' is not the name of a role"),
        (
            iam.Policy(bindings=[iam.Binding(role="roles/x", members=["a"] * (MAX_MEMBERS + 1))]),
            "1501 members, at most 1500",
        ),
    ],
)
def test_setting_an_invalid_iam_policy_is_refused(
    policies: IamPolicies, policy: iam.Policy, text: str
) -> None:
    """The former policy stays."""
    before = put(policies, iam.Policy(bindings=[VIEWER]))
    with pytest.raises(InvalidArgument, match=text):
        put(policies, policy)
    assert get(policies) == before


def test_an_iam_policy_with_conditions_needs_policy_version_3(
    policies: IamPolicies,
) -> None:
    """With version 3 they are stored."""
    assert put(policies, conditional(3)).bindings[0].condition.expression == "false"


def test_test_iam_permissions_grants_every_requested_permission(policies: IamPolicies) -> None:
    """The order is that of the request."""
    asked = ["pubsub.topics.publish", "pubsub.topics.update"]
    request = iam.TestIamPermissionsRequest(resource=TOPIC, permissions=asked)
    assert list(policies.test(request).permissions) == asked


def test_test_iam_permissions_grants_nothing_on_a_missing_resource(policies: IamPolicies) -> None:
    """IAM defines that this call returns no error."""
    request = iam.TestIamPermissionsRequest(
        resource="projects/test/topics/other", permissions=["pubsub.topics.publish"]
    )
    assert list(policies.test(request).permissions) == []


@pytest.mark.parametrize("permission", ["", "pubsub.*", "*"])
def test_test_iam_permissions_refuses_wildcard_permissions(
    policies: IamPolicies, permission: str
) -> None:
    """An empty name is refused, too."""
    with pytest.raises(InvalidArgument, match="is not the name of a permission"):
        policies.test(iam.TestIamPermissionsRequest(resource=TOPIC, permissions=[permission]))


CALLS: list[Callable[[IamPolicies, str], object]] = [
    lambda policies, resource: get(policies, resource),
    lambda policies, resource: put(policies, iam.Policy(), resource),
]


@pytest.mark.parametrize("call", CALLS)
def test_iam_policy_calls_for_a_missing_resource_end_with_not_found(
    policies: IamPolicies, call: Callable[..., object]
) -> None:
    """Reads and writes return the same error."""
    with pytest.raises(NotFound, match=r"Resource not found \(resource=other\)"):
        call(policies, "projects/test/topics/other")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "resource", ["", "orders", "projects/test", "projects/test/queues/orders", TOPIC + "/x"]
)
def test_iam_calls_with_an_invalid_resource_name_are_refused(
    policies: IamPolicies, call: Callable[..., object], resource: str
) -> None:
    """The error quotes the name."""
    with pytest.raises(InvalidArgument, match=rf"\(name={resource}\)"):
        call(policies, resource)
    with pytest.raises(InvalidArgument, match=rf"\(name={resource}\)"):
        policies.test(iam.TestIamPermissionsRequest(resource=resource))


def test_deleting_a_resource_deletes_its_iam_policy(
    policies: IamPolicies, notes: SavedResources
) -> None:
    """Another resource with the same name starts without one."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    policies.removed(Resource.TOPIC, TOPIC)
    assert notes.kept == {}
    assert list(get(policies).bindings) == []
    policies.removed(Resource.TOPIC, TOPIC)


def test_deleting_stored_values_of_a_topic_but_not_the_topic_keeps_the_iam_policy(
    policies: IamPolicies,
) -> None:
    """Other state of a resource is stored under the same name."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    for kind in (Resource.FEED, Resource.PULLS, Resource.POLICY):
        policies.removed(kind, TOPIC)
    assert list(get(policies).bindings) == [VIEWER]


def test_iam_policies_are_restored_from_storage_with_their_etags(
    policies: IamPolicies, notes: SavedResources
) -> None:
    """The bytes recorded by an observer include the etag."""
    policy = put(policies, iam.Policy(bindings=[VIEWER]))
    again = IamPolicies(exists=THERE.__contains__)
    for name, value in notes.kept.items():
        again.restore(name, value)
    assert get(again) == policy


def test_after_clearing_the_iam_policies_every_policy_is_empty(
    policies: IamPolicies, notes: SavedResources
) -> None:
    """A reset of the broker clears them."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    policies.clear()
    assert notes.kept == {}
    assert list(get(policies).bindings) == []
