"""ConnectingClient: the constructors that all clients share, blocking and asynchronous."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import grpc

from .endpoint import ClientOptions, ConnectionArguments

if TYPE_CHECKING:
    from google.auth.credentials import Credentials
    from typing_extensions import Self


class ConnectingClient(ABC):
    """Takes the arguments of a connection, so that they are named and described in one place."""

    def __init__(
        self,
        *,
        credentials: Credentials | None = None,
        endpoint: str | None = None,
        client_options: ClientOptions | Mapping[str, Any] | None = None,
        channel: grpc.Channel | None = None,
        channel_credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
    ) -> None:
        """Create a client. It connects when the first call is made.

        Args:
            credentials: Credentials of google-auth. Default: the application default credentials,
                or none for a broker that the environment names or that runs on this machine.
            endpoint: `host:port`, `http://host:port` for plain text, or `https://host:port` for
                TLS. Default: the environment variable PUBSUB_EMULATOR_HOST, else
                `pubsub.googleapis.com:443`. The variable also replaces an address under
                `googleapis.com`, with a warning.
            client_options: A dict or a `google.api_core.client_options.ClientOptions`. Its
                `api_endpoint` is used as `endpoint`.
            channel: A gRPC channel for all calls and streams, instead of all other arguments.
                Closing the client leaves it open. Without it, the stream of each subscription has a
                separate connection.
            channel_credentials: Root certificates and client certificate for TLS. Default: the
                system's roots.
            token: A bearer token for every call, instead of `credentials`. Default: the environment
                variable PULLSTREAM_TOKEN, which is never sent to Google's servers.
            ca: Path of a PEM file with the certificate of the server, or of the CA that signed it.
                Enables TLS. Default: the environment variable PULLSTREAM_CA, else the system's
                roots.
            cert: Path of a PEM file with a client certificate. Requires `key`. Enables TLS.
            key: Path of a PEM file with the key of `cert`.

        Raises:
            ValueError: An address or a token is malformed, arguments exclude each other, or a token
                would be sent in plain text to another machine.
            TypeError: The address is not a str.
            OSError: A file cannot be read.
            Unauthenticated: The server needs credentials, and there are none.
        """
        arguments: ConnectionArguments = {
            "credentials": credentials,
            "endpoint": endpoint,
            "client_options": client_options,
            "channel_credentials": channel_credentials,
            "token": token,
            "ca": ca,
            "cert": cert,
            "key": key,
        }
        self._connect(channel, arguments)

    @abstractmethod
    def _connect(self, channel: grpc.Channel | None, arguments: ConnectionArguments) -> None:
        """Set up the client; see `__init__`.

        Args:
            channel: The user's channel, or None.
            arguments: The other arguments.
        """

    @classmethod
    def from_service_account_info(cls, info: Mapping[str, Any], **options: Any) -> Self:
        """Create a client that uses a service account.

        Args:
            info: The key of the service account: the parsed JSON.
            **options: The other arguments of the constructor.
        """
        from google.oauth2.service_account import Credentials

        # google-auth declares itself typed, but this function has no annotations.
        credentials: Any = Credentials.from_service_account_info(info)  # type: ignore[no-untyped-call]
        return cls(credentials=credentials, **options)

    @classmethod
    def from_service_account_file(cls, filename: str | os.PathLike[str], **options: Any) -> Self:
        """Create a client that uses a service account.

        Args:
            filename: Path of a JSON file with the key of the service account.
            **options: The other arguments of the constructor.
        """
        from google.oauth2.service_account import Credentials

        credentials: Any = Credentials.from_service_account_file(filename)  # type: ignore[no-untyped-call]
        return cls(credentials=credentials, **options)

    @classmethod
    def from_service_account_json(cls, filename: str | os.PathLike[str], **options: Any) -> Self:
        """Create a client that uses a service account; an alias of `from_service_account_file`."""
        return cls.from_service_account_file(filename, **options)
