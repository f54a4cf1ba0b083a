"""The broker's certificate: errors at the start, and the clients that can connect."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.access import AccessError, Tls
from pullstream_emulator.access.options import tls_from
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.certificates import Identity, new_identity
from tests.emulator.wire import TIMEOUT

LIST = pubsub.ListTopicsRequest(project="projects/test")


@pytest.fixture(scope="module")
def broker() -> Identity:
    return new_identity("broker")


@pytest.fixture(scope="module")
def client() -> Identity:
    return new_identity("client")


def list_topics(emulator: Emulator, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    """Return the code with which a call over a new connection ends."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = (
        grpc.insecure_channel(emulator.endpoint, options)
        if credentials is None
        else grpc.secure_channel(emulator.endpoint, credentials, options)
    )
    with channel:
        call: Any = channel.unary_unary(BY_METHOD["ListTopics"].path)
        _, made = call.with_call(LIST.SerializeToString(), timeout=TIMEOUT)
        code: grpc.StatusCode = made.code()
        return code


def refused(emulator: Emulator, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as error:
        list_topics(emulator, credentials)
    code: grpc.StatusCode = error.value.code()
    return code


# ---- connections ---------------------------------------------------------------------------------


def test_a_client_that_trusts_the_tls_certificate_of_the_broker_can_connect(
    tmp_path: Path, broker: Identity
) -> None:
    """A client that does not trust it, or does not use TLS, cannot connect."""
    tls = Tls(*broker.write(tmp_path))
    with Emulator(server_credentials=tls.credentials()) as emulator:
        trusting = grpc.ssl_channel_credentials(broker.certificate)
        assert list_topics(emulator, trusting) is grpc.StatusCode.OK
        assert refused(emulator, grpc.ssl_channel_credentials()) is grpc.StatusCode.UNAVAILABLE
        assert refused(emulator, None) is grpc.StatusCode.UNAVAILABLE


def test_a_broker_with_a_client_ca_requires_a_client_certificate(
    tmp_path: Path, broker: Identity, client: Identity
) -> None:
    """The client CA must have signed it."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(client.certificate)
    tls = Tls(*broker.write(tmp_path), ca)
    known = grpc.ssl_channel_credentials(broker.certificate, client.key, client.certificate)
    stranger = new_identity("stranger")
    unknown = grpc.ssl_channel_credentials(broker.certificate, stranger.key, stranger.certificate)
    with Emulator(server_credentials=tls.credentials()) as emulator:
        assert list_topics(emulator, known) is grpc.StatusCode.OK
        assert refused(emulator, unknown) is grpc.StatusCode.UNAVAILABLE
        bare = grpc.ssl_channel_credentials(broker.certificate)
        assert refused(emulator, bare) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("mutual", [False, True])
def test_http_uses_the_same_tls_certificate_as_grpc(
    tmp_path: Path, broker: Identity, client: Identity, mutual: bool
) -> None:
    """HTTP also requires the same client certificates."""
    paths = broker.write(tmp_path)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(client.certificate)
    server = Tls(*paths, ca if mutual else None).context()
    assert server.verify_mode == (ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE)
    trusting = ssl.create_default_context(cadata=broker.certificate.decode())
    if mutual:
        (tmp_path / "client").mkdir()
        trusting.load_cert_chain(*client.write(tmp_path / "client"))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(incoming, outgoing, server_side=True)
    theirs = trusting.wrap_bio(outgoing, incoming, server_hostname="127.0.0.1")
    for side in (theirs, ours, theirs, ours):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert theirs.version() == "TLSv1.3"
    assert (ours.getpeercert(binary_form=True) is not None) == mutual


# ---- errors at the start -------------------------------------------------------------------------


def test_without_tls_options_the_broker_serves_plain_text() -> None:
    """The broker serves plain text."""
    assert tls_from(None, None, None) is None


@pytest.mark.parametrize("given", ["certificate", "key", "client_ca"])
def test_the_broker_refuses_tls_options_without_both_a_certificate_and_a_key(
    tmp_path: Path, given: str
) -> None:
    """A CA for clients needs both."""
    paths = {"certificate": None, "key": None, "client_ca": None, given: tmp_path / "x.pem"}
    with pytest.raises(AccessError, match="both a certificate and its key"):
        tls_from(**paths)


@pytest.mark.parametrize("bad", ["certificate", "key", "client_ca"])
@pytest.mark.parametrize(
    ("content", "text"), [(None, "No such file"), (b"no PEM", "not valid PEM"), (b"", "not valid")]
)
def test_the_error_for_an_unusable_tls_file_names_the_file(
    tmp_path: Path, broker: Identity, bad: str, content: bytes | None, text: str
) -> None:
    """The error comes at the start, not with the first client."""
    certificate, key = broker.write(tmp_path)
    paths = {"certificate": certificate, "key": key, "client_ca": tmp_path / "ca.pem"}
    paths["client_ca"].write_bytes(broker.certificate)
    paths[bad].unlink()
    if content is not None:
        paths[bad].write_bytes(content)
    with pytest.raises(AccessError, match=text) as error:
        Tls(**paths)
    assert str(paths[bad]) in str(error.value)


def test_the_broker_refuses_a_tls_key_that_does_not_belong_to_the_certificate(
    tmp_path: Path, broker: Identity, client: Identity
) -> None:
    """The error comes from the broker. gRPC would report nothing and refuse every client."""
    certificate, key = broker.write(tmp_path)
    key.write_bytes(client.key)
    with pytest.raises(AccessError, match="KEY_VALUES_MISMATCH"):
        Tls(certificate, key)


def test_the_broker_refuses_an_encrypted_tls_key_file(tmp_path: Path, broker: Identity) -> None:
    """The broker does not ask for a password."""
    certificate, key = broker.write(tmp_path)
    key.write_bytes(broker.encrypted_key)
    with pytest.raises(AccessError, match="the key is encrypted"):
        Tls(certificate, key)
