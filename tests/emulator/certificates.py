"""Generates certificates for loopback addresses."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pullstream_protocol.clock import SYSTEM_CLOCK


@dataclass(frozen=True)
class Identity:
    """A key with its self-signed certificate, which is its own CA."""

    certificate: bytes
    key: bytes
    encrypted_key: bytes

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write both files and return the paths of certificate and key."""
        paths = folder / "cert.pem", folder / "key.pem"
        paths[0].write_bytes(self.certificate)
        paths[1].write_bytes(self.key)
        return paths


def new_identity(name: str, *hosts: str) -> Identity:
    """Return an identity for 127.0.0.1 and these host names. It is valid for one day."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.fromtimestamp(SYSTEM_CLOCK.now(), datetime.timezone.utc)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    names = x509.SubjectAlternativeName([loopback, *map(x509.DNSName, hosts)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
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
