"""The broker's certificate, for gRPC and for HTTP."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from .access import AccessError


@dataclass(frozen=True)
class Tls:
    """Where the certificate is (PEM), its key, and perhaps the CA whose clients alone may come in.

    Read and tried when made.

    Raises:
        AccessError: a file cannot be used; the text names it.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        self.context()

    def credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server."""
        client_ca = None if self.client_ca is None else self.client_ca.read_bytes()
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.certificate.read_bytes())],
            root_certificates=client_ca,
            require_client_auth=client_ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """For an HTTP server."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            for path in (self.certificate, self.key):
                # load_cert_chain does not tell which of the two it cannot read.
                path.read_bytes()
            context.load_cert_chain(self.certificate, self.key, password=self._refuse_password)
        except (OSError, ValueError) as error:
            raise AccessError(
                f"no use of certificate {self.certificate} with key {self.key}: {_reason(error)}"
            ) from error
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self.client_ca)
            except OSError as error:
                raise AccessError(
                    f"no use of client CA {self.client_ca}: {_reason(error)}"
                ) from error
        return context

    def _refuse_password(self) -> str:
        # Without this OpenSSL would ask on the terminal.
        raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not valid PEM of a matching pair ({error.reason})"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}"
    return str(error)
