"""IAM policies: storage, etags, and permissions, which are always granted."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_emulator.services.iam_policies import MAX_MEMBERS, IamPolicies
from pullstream_protocol.errors import Aborted, InvalidArgument, NotFound
from pullstream_protocol.messages import iam_pb2 as iam

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
    """Records the events of an observer, as storage would."""

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
def policies(notes: Notes) -> IamPolicies:
    return IamPolicies(exists=THERE.__contains__, observer=notes)


def get(policies: IamPolicies, resource: str = TOPIC) -> iam.Policy:
    return policies.get(iam.GetIamPolicyRequest(resource=resource))


def put(policies: IamPolicies, policy: iam.Policy, resource: str = TOPIC) -> iam.Policy:
    return policies.set(iam.SetIamPolicyRequest(resource=resource, policy=policy))


@pytest.mark.parametrize("resource", sorted(THERE))
def test_a_policy_that_nobody_set(policies: IamPolicies, resource: str) -> None:
    """For every kind of resource it is empty, with the etag of the service."""
    policy = get(policies, resource)
    assert base64.b64encode(policy.etag) == b"ACAB"
    assert policy == iam.Policy(etag=policy.etag)


def test_a_policy_is_kept_as_it_was_set(policies: IamPolicies) -> None:
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


def test_what_is_reported_is_the_callers(policies: IamPolicies) -> None:
    """A change of the returned object does not affect the broker."""
    put(policies, iam.Policy(bindings=[VIEWER])).bindings.append(PUBLISHER)
    get(policies).bindings.append(PUBLISHER)
    assert list(get(policies).bindings) == [VIEWER]


def test_a_stale_etag_is_refused(policies: IamPolicies) -> None:
    """Of two clients that read and write, the second must read again."""
    first, second = get(policies), get(policies)
    first.bindings.append(VIEWER)
    put(policies, first)
    second.bindings.append(PUBLISHER)
    with pytest.raises(Aborted, match="There were concurrent policy changes"):
        put(policies, second)
    assert list(get(policies).bindings) == [VIEWER]


def test_every_write_has_an_etag_of_its_own(policies: IamPolicies) -> None:
    """This includes a write without a change, and one that restores an earlier policy."""
    etags = {get(policies).etag}
    for bindings in ([VIEWER], [VIEWER], [], [VIEWER]):
        etags.add(put(policies, iam.Policy(bindings=bindings)).etag)
    assert len(etags) == 5


def test_without_an_etag_the_last_one_wins(policies: IamPolicies) -> None:
    """This overwrites a policy without a check."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    put(policies, iam.Policy(bindings=[PUBLISHER]))
    assert list(get(policies).bindings) == [PUBLISHER]


def test_a_mask_replaces_what_it_names(policies: IamPolicies) -> None:
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
def test_bad_policies(policies: IamPolicies, policy: iam.Policy, text: str) -> None:
    """They are refused as a whole, and the former policy stays."""
    before = put(policies, iam.Policy(bindings=[VIEWER]))
    with pytest.raises(InvalidArgument, match=text):
        put(policies, policy)
    assert get(policies) == before


def test_conditions_need_version_3(policies: IamPolicies) -> None:
    """With version 3 they are stored."""
    assert put(policies, conditional(3)).bindings[0].condition.expression == "false"


def test_every_permission_is_granted(policies: IamPolicies) -> None:
    """The order is that of the request."""
    asked = ["pubsub.topics.publish", "pubsub.topics.update"]
    request = iam.TestIamPermissionsRequest(resource=TOPIC, permissions=asked)
    assert list(policies.test(request).permissions) == asked


def test_nobody_has_permissions_on_what_is_not_there(policies: IamPolicies) -> None:
    """IAM defines that this call returns no error."""
    request = iam.TestIamPermissionsRequest(
        resource="projects/test/topics/other", permissions=["pubsub.topics.publish"]
    )
    assert list(policies.test(request).permissions) == []


@pytest.mark.parametrize("permission", ["", "pubsub.*", "*"])
def test_permissions_have_names(policies: IamPolicies, permission: str) -> None:
    """Wildcards are refused."""
    with pytest.raises(InvalidArgument, match="is not the name of a permission"):
        policies.test(iam.TestIamPermissionsRequest(resource=TOPIC, permissions=[permission]))


CALLS: list[Callable[[IamPolicies, str], object]] = [
    lambda policies, resource: get(policies, resource),
    lambda policies, resource: put(policies, iam.Policy(), resource),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_resource_that_is_not_there(policies: IamPolicies, call: Callable[..., object]) -> None:
    """Reads and writes return the same error."""
    with pytest.raises(NotFound, match=r"Resource not found \(resource=other\)"):
        call(policies, "projects/test/topics/other")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "resource", ["", "orders", "projects/test", "projects/test/queues/orders", TOPIC + "/x"]
)
def test_what_is_no_resource(
    policies: IamPolicies, call: Callable[..., object], resource: str
) -> None:
    """The error quotes it."""
    with pytest.raises(InvalidArgument, match=rf"\(name={resource}\)"):
        call(policies, resource)
    with pytest.raises(InvalidArgument, match=rf"\(name={resource}\)"):
        policies.test(iam.TestIamPermissionsRequest(resource=resource))


def test_a_policy_goes_with_its_resource(policies: IamPolicies, notes: Notes) -> None:
    """Another resource with the same name starts without one."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    policies.removed(Resource.TOPIC, TOPIC)
    assert notes.kept == {}
    assert list(get(policies).bindings) == []
    policies.removed(Resource.TOPIC, TOPIC)


def test_a_policy_stays_when_a_setting_of_its_resource_goes(
    policies: IamPolicies, notes: Notes
) -> None:
    """Other state of a resource is stored under the same name."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    for kind in (Resource.FEED, Resource.PULLS, Resource.POLICY):
        policies.removed(kind, TOPIC)
    assert list(get(policies).bindings) == [VIEWER]


def test_policies_come_back(policies: IamPolicies, notes: Notes) -> None:
    """The bytes recorded by an observer include the etag."""
    policy = put(policies, iam.Policy(bindings=[VIEWER]))
    again = IamPolicies(exists=THERE.__contains__)
    for name, value in notes.kept.items():
        again.restore(name, value)
    assert get(again) == policy


def test_all_can_be_cleared(policies: IamPolicies, notes: Notes) -> None:
    """A reset of the broker does this."""
    put(policies, iam.Policy(bindings=[VIEWER]))
    policies.clear()
    assert notes.kept == {}
    assert list(get(policies).bindings) == []
