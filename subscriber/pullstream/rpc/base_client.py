"""BaseClient: the connection, the calls and the resource names that all clients share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from pullstream_protocol import names
from pullstream_protocol.messages import iam_pb2 as iam

from .channel_pool import ChannelPool, SharedChannel
from .connecting_client import ConnectingClient
from .endpoint import ConnectionArguments, access_of, security_of
from .rpcs import CallOptions, Rpcs
from .unary_client import UnaryClient

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class Transport:
    """The connection of a client, under the name that the official clients have for it.

    Args:
        close: Closes the client.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = close

    def close(self) -> None:
        """Close the client; the same as its `close()`."""
        self._close()


class BaseClient(ConnectingClient, UnaryClient):
    """Base of all clients. Thread-safe. A `with` statement closes the client at its end."""

    def _connect(self, channel: grpc.Channel | None, arguments: ConnectionArguments) -> None:
        self._closed = False
        self._target = ""
        self._connections: ChannelPool | SharedChannel
        if channel is None:
            access = access_of(**arguments)
            security = security_of(
                access,
                credentials=arguments["credentials"],
                channel_credentials=arguments["channel_credentials"],
            )
            self._connections = ChannelPool(access, security)
            self._target = access.target.address
        elif any(arguments.values()):
            raise ValueError(
                "channel= already defines the connection; leave out endpoint, client_options, "
                "credentials, channel_credentials, token, ca, cert and key"
            )
        else:
            self._connections = SharedChannel(channel)
        pool = self._connections
        # Only the user can replace the user's channel.
        replace = pool.replace if isinstance(pool, ChannelPool) else None
        UnaryClient.__init__(self, Rpcs(pool.open(), replace=replace))

    @property
    def target(self) -> str:
        """The server's address with its port. Empty if the client was given a channel."""
        return self._target

    @property
    def transport(self) -> Transport:
        """The connection, which `transport.close()` closes, as for the official client."""
        return Transport(self.close)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """End all calls and connections. Further calls of this method do nothing."""
        self._closed = True
        self._connections.close_all()

    def __enter__(self) -> Self:
        if self._closed:
            raise RuntimeError("this client is closed and cannot be used again; make a new one")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- names of resources ----------------------------------------------------------------

    @staticmethod
    def topic_path(project: str, topic: str) -> str:
        """Return `projects/PROJECT/topics/TOPIC`."""
        return names.topic_path(project, topic)

    @staticmethod
    def subscription_path(project: str, subscription: str) -> str:
        """Return `projects/PROJECT/subscriptions/SUBSCRIPTION`."""
        return names.subscription_path(project, subscription)

    @staticmethod
    def snapshot_path(project: str, snapshot: str) -> str:
        """Return `projects/PROJECT/snapshots/SNAPSHOT`."""
        return names.snapshot_path(project, snapshot)

    @staticmethod
    def schema_path(project: str, schema: str) -> str:
        """Return `projects/PROJECT/schemas/SCHEMA`."""
        return names.schema_path(project, schema)

    @staticmethod
    def common_project_path(project: str) -> str:
        """Return `projects/PROJECT`."""
        return names.project_path(project)

    @staticmethod
    def parse_topic_path(path: str) -> dict[str, str]:
        """Split a topic's name into `{"project": ..., "topic": ...}`.

        Returns `{}` if `path` is not a topic's name.
        """
        return names.parse("topics", path)

    @staticmethod
    def parse_subscription_path(path: str) -> dict[str, str]:
        """Split a subscription's name into `{"project": ..., "subscription": ...}`.

        Returns `{}` if `path` is not a subscription's name.
        """
        return names.parse("subscriptions", path)

    @staticmethod
    def parse_snapshot_path(path: str) -> dict[str, str]:
        """Split a snapshot's name into `{"project": ..., "snapshot": ...}`.

        Returns `{}` if `path` is not a snapshot's name.
        """
        return names.parse("snapshots", path)

    @staticmethod
    def parse_schema_path(path: str) -> dict[str, str]:
        """Split a schema's name into `{"project": ..., "schema": ...}`.

        Returns `{}` if `path` is not a schema's name.
        """
        return names.parse("schemas", path)

    @staticmethod
    def parse_common_project_path(path: str) -> dict[str, str]:
        """Split a project's name into `{"project": ...}`.

        Returns `{}` if `path` is not a project's name.
        """
        prefix, _, project = path.partition("/")
        return {"project": project} if prefix == "projects" and project else {}

    # ---- access policies -------------------------------------------------------------------

    def get_iam_policy(
        self,
        request: iam.GetIamPolicyRequest | Mapping[str, Any] | None = None,
        *,
        resource: str | None = None,
        **options: Unpack[CallOptions],
    ) -> iam.Policy:
        """Return the access policy of a resource.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            resource: Full name of a topic, subscription or snapshot.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.
        """
        return self._call("GetIamPolicy", iam.Policy, request, options, resource=resource)

    def set_iam_policy(
        self,
        request: iam.SetIamPolicyRequest | Mapping[str, Any] | None = None,
        *,
        resource: str | None = None,
        policy: iam.Policy | Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> iam.Policy:
        """Replace the access policy of a resource.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            resource: Full name of a topic, subscription or snapshot.
            policy: The new policy.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            The policy as the server stores it.

        Raises:
            Aborted: The policy has an old etag: the stored policy was replaced meanwhile.
        """
        fields = {"resource": resource, "policy": policy}
        return self._call("SetIamPolicy", iam.Policy, request, options, **fields)

    def test_iam_permissions(
        self,
        request: iam.TestIamPermissionsRequest | Mapping[str, Any] | None = None,
        *,
        resource: str | None = None,
        permissions: Sequence[str] | None = None,
        **options: Unpack[CallOptions],
    ) -> iam.TestIamPermissionsResponse:
        """Return the permissions that the caller has on a resource.

        Args:
            request: The request, instead of the other keywords: a message or a dict.
            resource: Full name of a topic, subscription or snapshot.
            permissions: The permissions to test, such as `pubsub.topics.publish`.
            **options: `retry`, `timeout` and `metadata`; see `CallOptions`.

        Returns:
            A response with the granted ones of `permissions`.
        """
        fields = {"resource": resource, "permissions": permissions}
        response = iam.TestIamPermissionsResponse
        return self._call("TestIamPermissions", response, request, options, **fields)
