"""google.iam.v1.IAMPolicy."""

from __future__ import annotations

from emulator.policies import Policies


class IamService:
    """The policies, under the names of the RPCs."""

    def __init__(self, policies: Policies) -> None:
        self.get_iam_policy = policies.get
        self.set_iam_policy = policies.set
        self.test_iam_permissions = policies.test
