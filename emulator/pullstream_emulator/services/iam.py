"""google.iam.v1.IAMPolicy."""

from __future__ import annotations

from collections.abc import Mapping

from pullstream_protocol.rpcs import IAM_POLICY

from .iam_policies import IamPolicies
from .rpc_methods import RpcMethod, UnaryMethod


class IamService:
    """The policies."""

    service = IAM_POLICY

    def __init__(self, policies: IamPolicies) -> None:
        self._policies = policies

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name; IamPolicies answers all of them."""
        return {
            "SetIamPolicy": UnaryMethod(self._policies.set),
            "GetIamPolicy": UnaryMethod(self._policies.get),
            "TestIamPermissions": UnaryMethod(self._policies.test),
        }
