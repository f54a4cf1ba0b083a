"""What every client is: a channel with its life, calls on it, and the names of resources."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message

from protocol import names
from protocol.messages import iam_pb2 as iam
from protocol.rpcs import BY_METHOD

from .connection import ClientOptions, locate, security_of
from .connections import Connections, GivenChannel
from .paging import Pager
from .request import build_request
from .rpc import CallOptions, Rpcs

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from typing_extensions import Self, Unpack

M = TypeVar("M", bound=Message)


class ServiceClient:
    """Base of the clients. Thread-safe; may be used in a `with` statement, which closes it.

    Args:
        credentials: google-auth credentials. Default: the application default credentials, or none
            at all for a broker in the environment or on this machine.
        endpoint: `host:port`, or `http://host:port` for plain text, `https://host:port` for TLS.
            Default: the environment's PUBSUB_EMULATOR_HOST, else `pubsub.googleapis.com:443`.
        client_options: a dict or a `google.api_core.client_options.ClientOptions`, of which
            `api_endpoint` stands for `endpoint`.
        channel: a channel of your own instead of all the others. Everything goes over it; without
            it the stream of each subscription has a connection of its own. Closing the client
            leaves it open.
        channel_credentials: roots and client certificate for TLS. Default: the system's roots.

    Raises:
        ValueError: an address has another form, or arguments exclude each other.
        Unauthenticated: credentials are needed and there are none.
    """

    def __init__(
        self,
        *,
        credentials: Credentials | None = None,
        endpoint: str | None = None,
        client_options: ClientOptions | Mapping[str, Any] | None = None,
        channel: grpc.Channel | None = None,
        channel_credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._closed = False
        self._target = ""
        self._connections: Connections | GivenChannel
        if channel is None:
            target = locate(
                endpoint=endpoint,
                client_options=client_options,
                credentials=credentials,
                channel_credentials=channel_credentials,
            )
            security = security_of(
                target, credentials=credentials, channel_credentials=channel_credentials
            )
            self._connections = Connections(target, security)
            self._target = target.address
        elif any((endpoint, client_options, credentials, channel_credentials)):
            raise ValueError(
                "channel= says where and how to connect: leave out endpoint, client_options, "
                "credentials and channel_credentials"
            )
        else:
            self._connections = GivenChannel(channel)
        self._rpcs = Rpcs(self._connections.open())

    @classmethod
    def from_service_account_info(cls, info: Mapping[str, Any], **options: Any) -> Self:
        """A client with the service account whose key, the parsed JSON, is `info`.

        `options` are the constructor's other arguments.
        """
        from google.oauth2.service_account import Credentials

        # google-auth says that it is typed, but this is not.
        credentials: Any = Credentials.from_service_account_info(info)  # type: ignore[no-untyped-call]
        return cls(credentials=credentials, **options)

    @classmethod
    def from_service_account_file(cls, filename: str | os.PathLike[str], **options: Any) -> Self:
        """As `from_service_account_info`, with a key in a JSON file."""
        from google.oauth2.service_account import Credentials

        credentials: Any = Credentials.from_service_account_file(filename)  # type: ignore[no-untyped-call]
        return cls(credentials=credentials, **options)

    @classmethod
    def from_service_account_json(cls, filename: str | os.PathLike[str], **options: Any) -> Self:
        """Another name of `from_service_account_file`."""
        return cls.from_service_account_file(filename, **options)

    @property
    def target(self) -> str:
        """The server's address, `host:port`; empty when the channel was given by the caller."""
        return self._target

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """End all calls and the connections. A second call does nothing."""
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
        """`projects/PROJECT/topics/TOPIC`."""
        return names.topic_path(project, topic)

    @staticmethod
    def subscription_path(project: str, subscription: str) -> str:
        """`projects/PROJECT/subscriptions/SUBSCRIPTION`."""
        return names.subscription_path(project, subscription)

    @staticmethod
    def snapshot_path(project: str, snapshot: str) -> str:
        """`projects/PROJECT/snapshots/SNAPSHOT`."""
        return names.snapshot_path(project, snapshot)

    @staticmethod
    def common_project_path(project: str) -> str:
        """`projects/PROJECT`."""
        return names.project_path(project)

    @staticmethod
    def parse_topic_path(path: str) -> dict[str, str]:
        """`{"project": ..., "topic": ...}`, or `{}` if `path` is not a topic's name."""
        return names.parse("topics", path)

    @staticmethod
    def parse_subscription_path(path: str) -> dict[str, str]:
        """`{"project": ..., "subscription": ...}`, or `{}` if `path` is not a subscription's."""
        return names.parse("subscriptions", path)

    @staticmethod
    def parse_snapshot_path(path: str) -> dict[str, str]:
        """`{"project": ..., "snapshot": ...}`, or `{}` if `path` is not a snapshot's name."""
        return names.parse("snapshots", path)

    @staticmethod
    def parse_common_project_path(path: str) -> dict[str, str]:
        """`{"project": ...}`, or `{}` if `path` is not a project's name."""
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
        """Who may do what with `resource`, the full name of a topic, subscription or snapshot."""
        return self._call("GetIamPolicy", iam.Policy, request, options, resource=resource)

    def set_iam_policy(
        self,
        request: iam.SetIamPolicyRequest | Mapping[str, Any] | None = None,
        *,
        resource: str | None = None,
        policy: iam.Policy | Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> iam.Policy:
        """Replace the policy of `resource` and return it as stored.

        Raises:
            Aborted: the policy has the etag of one that has been replaced meanwhile.
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
        """Those of `permissions`, such as `pubsub.topics.publish`, that the caller has."""
        fields = {"resource": resource, "permissions": permissions}
        response = iam.TestIamPermissionsResponse
        return self._call("TestIamPermissions", response, request, options, **fields)

    # ---- calls -----------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        response: type[M],
        request: Message | Mapping[str, Any] | None,
        options: CallOptions,
        **fields: Any,
    ) -> M:
        """Make the call `method`; `response` says to the type checker what the table says."""
        message = _request_of(method, request, fields, options)
        result: M = self._rpcs.call(method, message, **options)
        return result

    def _list(
        self,
        method: str,
        items: str,
        request: Message | Mapping[str, Any] | None,
        options: CallOptions,
        **fields: Any,
    ) -> Pager[Any]:
        """Make the list call `method`; `items` is the field of the response that holds the list."""
        first: Any = _request_of(method, request, fields, options)

        def fetch(token: str) -> Any:
            page = type(first)()
            page.CopyFrom(first)
            # A caller's own request may begin in the middle.
            page.page_token = token or first.page_token
            return self._rpcs.call(method, page, **options)

        return Pager(fetch, items)


def _request_of(
    method: str,
    request: Message | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
    options: CallOptions,
) -> Message:
    """The request of a call with these keywords.

    Raises:
        TypeError: there is no such option. The methods take them unseen, and `Rpcs.call` would
            refuse them under its own name.
        ValueError, TypeError: see `build_request`.
    """
    known = CallOptions.__annotations__
    unknown = ", ".join(sorted(set(options) - set(known)))
    if unknown:
        allowed = ", ".join(("request", *fields, *known))
        raise TypeError(f"{method} has no keyword {unknown}; it has {allowed}")
    return build_request(BY_METHOD[method].request, request, fields)
