"""Policies: kept, told, guarded by etags; every permission is granted."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from emulator.engine.observer import Observer, Resource
from emulator.policies import MAX_MEMBERS, Policies
from protocol.errors import Aborted, InvalidArgument, NotFound
from protocol.messages import iam_pb2 as iam

TOPIC = "projects/test/topics/orders"
THERE = {
    TOPIC,
    "projects/test/subscriptions/billing",
    "projects/test/snapshots/monday",
    "projects/test/schemas/states",
}
VIEWER = iam.Binding(role="roles/pubsub.viewer", members=["group:cloud-logs@google.com"])
PUBLISHER = iam.Binding(role="roles/pubsub.publisher", members=["allUsers"])


class Notes(Observer):
    """What an observer was told, as storage would keep it."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def saved(self, kind: Resource, name: str, value: bytes) -> None:
        assert kind is Resource.POLICY
        self.kept[name] = value

    def removed(self, kind: Resource, name: str) -> None:
        assert kind is Resource.POLICY
        del self.kept[name]


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def policies(notes: Notes) -> Policies:
    return Policies(exists=THERE.__contains__, observer=notes)


def get(policies: Policies, resource: str = TOPIC) -> iam.Policy:
    return policies.get(iam.GetIamPolicyRequest(resource=resource))


def put(policies: Policies, policy: iam.Policy, resource: str = TOPIC) -> iam.Policy:
    return policies.set(iam.SetIamPolicyRequest(resource=resource, policy=policy))


@pytest.mark.parametrize("resource", sorted(THERE))
def test_a_policy_that_nobody_set(policies: Policies, resource: str) -> None:
    """Every kind of resource has one: empty, with the service's etag."""
    policy = get(policies, resource)
    assert base64.b64encode(policy.etag) == b"ACAB"
    assert policy == iam.Policy(etag=policy.etag)


def test_a_policy_is_kept_as_it_was_set(policies: Policies) -> None:
    """Only the etag is the broker's."""
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


def test_what_is_told_is_the_callers(policies: Policies) -> None:
    """Changing an answer changes nothing in the broker."""
    put(policies, iam.Policy(bindings=[VIEWER])).bindings.append(PUBLISHER)
    get(policies).bindings.append(PUBLISHER)
    assert list(get(policies).bindings) == [VIEWER]


def test_a_stale_etag_is_refused(policies: Policies) -> None:
    """Of two who read and write, the second must read again."""
    first, second = get(policies), get(policies)
    first.bindings.append(VIEWER)
    put(policies, first)
    second.bindings.append(PUBLISHER)
    with pytest.raises(Aborted, match="There were concurrent policy changes"):
        put(policies, second)
    assert list(get(policies).bindings) == [VIEWER]


def test_every_write_has_an_etag_of_its_own(policies: Policies) -> None:
    """Also one that changes nothing, or that goes back to what was."""
    etags = {get(policies).etag}
    for bindings in ([VIEWER], [VIEWER], [], [VIEWER]):
        etags.add(put(policies, iam.Policy(bindings=bindings)).etag)
    assert len(etags) == 5


def test_without_an_etag_the_last_one_wins(policies: Policies) -> None:
    """It is how a policy is overwritten blindly."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    put(policies, iam.Policy(bindings=[PUBLISHER]))
    assert list(get(policies).bindings) == [PUBLISHER]


def test_a_mask_replaces_what_it_names(policies: Policies) -> None:
    """The rest stays."""
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
def test_bad_policies(policies: Policies, policy: iam.Policy, text: str) -> None:
    """Refused whole: what was set before stays."""
    before = put(policies, iam.Policy(bindings=[VIEWER]))
    with pytest.raises(InvalidArgument, match=text):
        put(policies, policy)
    assert get(policies) == before


def test_conditions_need_version_3(policies: Policies) -> None:
    """With it they are kept."""
    assert put(policies, conditional(3)).bindings[0].condition.expression == "false"


def test_every_permission_is_granted(policies: Policies) -> None:
    """In the order in which they were asked for."""
    asked = ["pubsub.topics.publish", "pubsub.topics.update"]
    request = iam.TestIamPermissionsRequest(resource=TOPIC, permissions=asked)
    assert list(policies.test(request).permissions) == asked


def test_nobody_has_permissions_on_what_is_not_there(policies: Policies) -> None:
    """That is no error, as IAM defines this call."""
    request = iam.TestIamPermissionsRequest(
        resource="projects/test/topics/other", permissions=["pubsub.topics.publish"]
    )
    assert list(policies.test(request).permissions) == []


@pytest.mark.parametrize("permission", ["", "pubsub.*", "*"])
def test_permissions_have_names(policies: Policies, permission: str) -> None:
    """No wildcards."""
    with pytest.raises(InvalidArgument, match="is not the name of a permission"):
        policies.test(iam.TestIamPermissionsRequest(resource=TOPIC, permissions=[permission]))


CALLS: list[Callable[[Policies, str], object]] = [
    lambda policies, resource: get(policies, resource),
    lambda policies, resource: put(policies, iam.Policy(), resource),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_resource_that_is_not_there(policies: Policies, call: Callable[..., object]) -> None:
    """It is missing for the one who reads and the one who writes."""
    with pytest.raises(NotFound, match=r"Resource not found \(resource=other\)"):
        call(policies, "projects/test/topics/other")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "resource", ["", "orders", "projects/test", "projects/test/queues/orders", TOPIC + "/x"]
)
def test_what_is_no_resource(
    policies: Policies, call: Callable[..., object], resource: str
) -> None:
    """The refusal quotes it."""
    with pytest.raises(InvalidArgument, match=rf"\(name={resource}\)"):
        call(policies, resource)
    with pytest.raises(InvalidArgument, match=rf"\(name={resource}\)"):
        policies.test(iam.TestIamPermissionsRequest(resource=resource))


def test_a_policy_goes_with_its_resource(policies: Policies, notes: Notes) -> None:
    """Another one under the same name begins anew."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    policies.removed(Resource.TOPIC, TOPIC)
    assert notes.kept == {}
    assert list(get(policies).bindings) == []
    policies.removed(Resource.TOPIC, TOPIC)


def test_a_policy_stays_when_a_setting_of_its_resource_goes(
    policies: Policies, notes: Notes
) -> None:
    """What is kept beside a resource bears its name."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    for kind in (Resource.FEED, Resource.PULLS, Resource.POLICY):
        policies.removed(kind, TOPIC)
    assert list(get(policies).bindings) == [VIEWER]


def test_policies_come_back(policies: Policies, notes: Notes) -> None:
    """From the bytes that an observer was told, with the etag that readers hold."""
    policy = put(policies, iam.Policy(bindings=[VIEWER]))
    again = Policies(exists=THERE.__contains__)
    for name, value in notes.kept.items():
        again.restore(name, value)
    assert get(again) == policy


def test_all_can_be_cleared(policies: Policies, notes: Notes) -> None:
    """As a reset of the broker does."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    policies.clear()
    assert notes.kept == {}
    assert list(get(policies).bindings) == []
