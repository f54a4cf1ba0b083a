"""Certificates for loopback, made on the spot."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from protocol.clock import SYSTEM_CLOCK


@dataclass(frozen=True)
class Identity:
    """A key and its self-signed certificate, which is its own CA."""

    certificate: bytes
    key: bytes
    encrypted_key: bytes

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Where certificate and key now are."""
        paths = folder / "cert.pem", folder / "key.pem"
        paths[0].write_bytes(self.certificate)
        paths[1].write_bytes(self.key)
        return paths


def new_identity(name: str) -> Identity:
    """One that is good for 127.0.0.1 and for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.fromtimestamp(SYSTEM_CLOCK.now(), datetime.timezone.utc)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = serialization.BestAvailableEncryption(b"password")
    return Identity(
        certificate.public_bytes(encoding),
        key.private_bytes(encoding, form, serialization.NoEncryption()),
        key.private_bytes(encoding, form, locked),
    )
