"""TLS certificate of the broker, for gRPC and for HTTP."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from .access import AccessError


@dataclass(frozen=True)
class Tls:
    """PEM files for TLS. They are read and checked on construction.

    Attributes:
        certificate: The certificate, with its chain.
        key: Its key, not encrypted.
        client_ca: Accept only clients with a certificate of this CA; None accepts all clients.

    Raises:
        AccessError: A file cannot be used; the text names it.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        self.context()

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC server."""
        return ServedCertificate(self).credentials()

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """Return the content of the files, for gRPC."""
        client_ca = None if self.client_ca is None else self.client_ca.read_bytes()
        return grpc.ssl_server_certificate_configuration(
            [(self.key.read_bytes(), self.certificate.read_bytes())], root_certificates=client_ca
        )

    def names(self) -> frozenset[str]:
        """Return the host names in the certificate; some may begin with `*.`.

        Needs the extra `http`.

        Raises:
            AccessError: The certificate cannot be parsed, although TLS can be served with it.
        """
        # Imported late: only HTTP over TLS needs it, and it takes as long to load as ssl.
        from cryptography import x509

        # The file may contain a chain; the broker's certificate comes first.
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return frozenset()
        except (OSError, ValueError) as error:
            raise AccessError(
                f"the host names in certificate {self.certificate} cannot be read: {error}"
            ) from error
        return frozenset(names.value.get_values_for_type(x509.DNSName))

    def context(self) -> ssl.SSLContext:
        """Return a context for an HTTP server."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            for path in (self.certificate, self.key):
                # Read both first, because load_cert_chain does not say which one it cannot read.
                path.read_bytes()
            context.load_cert_chain(self.certificate, self.key, password=self._refuse_password)
        except (OSError, ValueError) as error:
            raise AccessError(
                f"cannot use certificate {self.certificate} with key {self.key}: {_reason(error)}"
            ) from error
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self.client_ca)
            except OSError as error:
                raise AccessError(
                    f"cannot use client CA {self.client_ca}: {_reason(error)}"
                ) from error
        return context

    def _refuse_password(self) -> str:
        # Without this, OpenSSL would ask for a password on the terminal.
        raise ValueError("the key is encrypted")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not valid PEM, or not a matching pair ({error.reason})"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}"
    return str(error)


class ServedCertificate:
    """The certificate that a running broker serves. New connections use the newest one.

    gRPC's threads ask for it at each handshake. The other methods belong to the event loop.

    Args:
        tls: The files.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._context = tls.context()
        self._configuration = tls.configuration()
        # A configuration that gRPC does not have yet.
        self._newer: grpc.ServerCertificateConfiguration | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC server, which follow `reload`."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration,
            # The stubs do not know that None means: no change.
            self._take_newer,  # type: ignore[arg-type]
            require_client_authentication=self._tls.client_ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """Return the context for a new HTTP connection."""
        return self._context

    def reload(self) -> None:
        """Read the files again, after they were checked."""
        self._newer = self._tls.configuration()
        self._context = self._tls.context()

    def _take_newer(self) -> grpc.ServerCertificateConfiguration | None:
        newer, self._newer = self._newer, None
        return newer
