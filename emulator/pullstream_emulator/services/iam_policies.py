"""google.iam.v1.IAMPolicy: policies are stored and returned, but not enforced.

Every caller may do everything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_emulator.error_texts import invalid_argument, missing
from pullstream_protocol import names
from pullstream_protocol.errors import Aborted
from pullstream_protocol.messages import iam_pb2 as iam
from pullstream_protocol.rpcs import IAM_POLICY

from .rpc_methods import RpcMethod, UnaryMethod

# Etag that the real service returns for a policy that was never set; in JSON it reads ACAB.
FRESH_ETAG = b"\x00\x20\x01"
VERSIONS = (0, 1, 3)
CONDITIONS_VERSION = 3
MAX_MEMBERS = 1500
SETTABLE = ("version", "bindings", "audit_configs", "etag")

_COLLECTIONS = ("topics", "subscriptions", "snapshots", "schemas")
_WITH_POLICIES = (Resource.TOPIC, Resource.SUBSCRIPTION, Resource.SNAPSHOT, Resource.SCHEMA)


class IamPolicies(Observer):
    """The only owner of policies, by the full names of their resources.

    Observes the resources and removes the policy of a resource that is removed.

    Args:
        exists: Returns whether a resource exists.
        observer: Notified of changes of policies.
    """

    service = IAM_POLICY

    def __init__(self, *, exists: Callable[[str], bool], observer: Observer | None = None) -> None:
        self._exists = exists
        self.observer = observer or Observer()
        self._policies: dict[str, iam.Policy] = {}

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name."""
        return {
            "SetIamPolicy": UnaryMethod(self.set),
            "GetIamPolicy": UnaryMethod(self.get),
            "TestIamPermissions": UnaryMethod(self.test),
        }

    def restore(self, name: str, value: bytes) -> None:
        """Load a persisted policy. The observer is not notified."""
        self._policies[name] = iam.Policy.FromString(value)

    def removed(self, kind: Resource, name: str) -> None:
        """Drop the policy of the removed resource, if it had one, and notify the observer."""
        # Resources of other kinds have the same names as these, and may be removed before them.
        if kind in _WITH_POLICIES and self._policies.pop(name, None) is not None:
            self.observer.removed(Resource.POLICY, name)

    def clear(self) -> None:
        """Remove all policies."""
        for name in list(self._policies):
            del self._policies[name]
            self.observer.removed(Resource.POLICY, name)

    def get(self, request: iam.GetIamPolicyRequest) -> iam.Policy:
        """Return a copy of a policy; if none was set, an empty one with the default etag."""
        self._find(request.resource)
        return self._current(request.resource)

    def set(self, request: iam.SetIamPolicyRequest) -> iam.Policy:
        """Replace a policy, or the parts that the mask names.

        Raises:
            Aborted: The request's etag differs from the policy's present etag.
        """
        self._find(request.resource)
        new = self._current(request.resource)
        if request.policy.etag and request.policy.etag != new.etag:
            raise Aborted(
                "There were concurrent policy changes. Please retry the whole read-modify-write "
                "with exponential backoff."
            )
        before = new.SerializeToString(deterministic=True)
        for path in request.update_mask.paths or SETTABLE:
            if path not in SETTABLE:
                raise invalid_argument(f"update_mask: '{path}' is not a field of Policy")
            _replace(path, new, request.policy)
        _check(new)
        # A new etag for each write, also for one that changes nothing else.
        new.etag = hashlib.blake2b(
            before + new.SerializeToString(deterministic=True), digest_size=8
        ).digest()
        self._policies[request.resource] = new
        self.observer.saved(Resource.POLICY, request.resource, new.SerializeToString())
        return self._current(request.resource)

    def test(self, request: iam.TestIamPermissionsRequest) -> iam.TestIamPermissionsResponse:
        """Return all requested permissions; none for an unknown resource, as IAM specifies."""
        _check_name(request.resource)
        for permission in request.permissions:
            if not permission or "*" in permission:
                raise invalid_argument(
                    f"permissions: '{permission}' is not the name of a permission"
                )
        held = request.permissions if self._exists(request.resource) else ()
        return iam.TestIamPermissionsResponse(permissions=held)

    def _find(self, resource: str) -> None:
        _check_name(resource)
        if not self._exists(resource):
            raise missing(resource)

    def _current(self, resource: str) -> iam.Policy:
        """Return a copy of the present policy."""
        policy = iam.Policy(etag=FRESH_ETAG)
        if resource in self._policies:
            policy.CopyFrom(self._policies[resource])
        return policy


def _replace(field: str, target: iam.Policy, source: iam.Policy) -> None:
    if field == "version":
        target.version = source.version
    elif field != "etag":
        # The etag is set by the broker only.
        target.ClearField(field)
        getattr(target, field).MergeFrom(getattr(source, field))


def _check(policy: iam.Policy) -> None:
    if policy.version not in VERSIONS:
        raise invalid_argument(f"policy.version: {policy.version} is not one of 0, 1 and 3")
    members = 0
    for binding in policy.bindings:
        if "roles/" not in binding.role:
            raise invalid_argument(f"policy.bindings: '{binding.role}' is not the name of a role")
        if binding.HasField("condition") and policy.version != CONDITIONS_VERSION:
            raise invalid_argument("policy.version: a policy with conditions must have version 3")
        members += len(binding.members)
    if members > MAX_MEMBERS:
        raise invalid_argument(
            f"policy.bindings: {members} members, at most {MAX_MEMBERS} are allowed"
        )


def _check_name(resource: str) -> None:
    collection = resource.split("/")[2:3]
    if not collection or collection[0] not in _COLLECTIONS:
        raise names.invalid_name(resource)
    names.validate(collection[0], resource)
