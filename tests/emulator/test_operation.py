"""Log of a running broker, and SIGHUP: tokens and certificates are read again."""

from __future__ import annotations

import json
import queue
import re
import signal
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import Request, urlopen

import grpc
import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_protocol.errors import Unauthenticated
from pullstream_protocol.version import VERSION
from tests.emulator.broker import PROJECT, SUBSCRIPTION, TOPIC
from tests.emulator.certificates import Identity, new_identity
from tests.emulator.program import running
from tests.emulator.wire import TIMEOUT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")

INFO = {"PULLSTREAM_LOG_LEVEL": "info"}


def stopped(process: subprocess.Popen[str]) -> list[str]:
    """Stop a broker, and return the lines of its log."""
    process.terminate()
    _, log = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, log
    return log.splitlines()


def test_the_start_and_the_end_of_the_broker_are_logged(tmp_path: Path) -> None:
    """The block names addresses, the need of a token, the data directory and its content."""
    data = str(tmp_path / "data")
    with running("--data-dir", data, **INFO) as (process, endpoint):
        with (
            TopicAdminClient(endpoint=endpoint) as topics,
            SubscriberClient(endpoint=endpoint) as subscriptions,
        ):
            topics.create_topic(name=TOPIC)
            subscriptions.create_subscription(name=SUBSCRIPTION, topic=TOPIC)
            topics.publish(TOPIC, [{"data": b"a"}] * 3)
        lines = stopped(process)
    assert re.fullmatch(rf"INFO pullstream {VERSION}, Python [\d.]+, pid \d+", lines[0])
    assert lines[1] == f"INFO gRPC and HTTP on {endpoint}, needs no token"
    assert lines[-3] == (
        f"INFO data directory {data}: 0 topics, 0 subscriptions, 0 unacknowledged messages"
    )
    assert lines[-2:] == ["INFO SIGTERM: shutting down", "INFO stopped"]
    options = ("--data-dir", data, "--auth-token", "t", "--no-rest")
    with running(*options, **INFO) as (process, endpoint):
        lines = stopped(process)
    assert lines[1] == f"INFO gRPC on {endpoint}, needs a token"
    assert lines[2] == (
        f"INFO data directory {data}: 1 topics, 1 subscriptions, 3 unacknowledged messages"
    )


def test_with_the_json_log_format_each_line_of_the_broker_log_is_a_json_object() -> None:
    """Each line is an object; the access log has further fields."""
    options = ("--log-format", "json", "--access-log", "--auth-token", "t")
    with running(*options, **INFO) as (process, endpoint):
        with TopicAdminClient(endpoint=endpoint, token="t") as topics:
            topics.create_topic(name=TOPIC)
        with TopicAdminClient(endpoint=endpoint) as topics, pytest.raises(Unauthenticated):
            topics.create_topic(name=TOPIC)
        with urlopen(f"http://{endpoint}/healthz?secret=1", timeout=TIMEOUT) as response:
            assert response.status == 200
        records = [json.loads(line) for line in stopped(process)]
    calls = [record for record in records if record["logger"] == "pullstream.emulator.access"]
    assert [(each["protocol"], each["call"], each["outcome"]) for each in calls] == [
        ("gRPC", "google.pubsub.v1.Publisher/CreateTopic", "OK"),
        ("gRPC", "google.pubsub.v1.Publisher/CreateTopic", "UNAUTHENTICATED"),
        ("HTTP", "GET /healthz", "200"),
    ]
    for each in calls:
        assert each["caller"]
        assert 0 <= each["seconds"] < TIMEOUT
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"])
    assert records[0]["level"] == "INFO"


def test_a_sighup_makes_the_broker_program_read_the_auth_file_again(tmp_path: Path) -> None:
    """A file with an error changes nothing."""
    auth = tmp_path / "auth.json"

    def write(token: str) -> None:
        principal = {"tokens": [token], "projects": ["*"]}
        auth.write_text(json.dumps({"principals": {"ci": principal}}), encoding="utf-8")

    def status(token: str) -> bool:
        try:
            with TopicAdminClient(endpoint=endpoint, token=token) as topics:
                list(topics.list_topics(project=PROJECT))
        except Unauthenticated:
            return False
        return True

    write("old")
    with running("--auth-file", str(auth), **INFO) as (process, endpoint):
        assert (status("old"), status("new")) == (True, False)
        write("new")
        hang_up(process, "INFO SIGHUP: tokens and certificates were read again")
        assert (status("old"), status("new")) == (False, True)
        auth.write_text("{", encoding="utf-8")
        hang_up(process, "ERROR SIGHUP: tokens and certificates stay as they are")
        assert (status("old"), status("new")) == (False, True)
        stopped(process)


def hang_up(process: subprocess.Popen[str], answer: str) -> None:
    """Send SIGHUP, and wait until the broker has logged this answer."""
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(answer):
            return
    raise AssertionError("the broker has ended")


def test_a_sighup_makes_the_broker_program_read_the_tls_certificate_again(tmp_path: Path) -> None:
    """New connections get the new certificate, over gRPC and over HTTP."""
    first, second = new_identity("127.0.0.1"), new_identity("127.0.0.1")
    certificate, key = first.write(tmp_path)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with running(*options, **INFO) as (process, endpoint):
        assert trusted(endpoint, first) == (True, True)
        assert trusted(endpoint, second) == (False, False)
        second.write(tmp_path)
        hang_up(process, "INFO SIGHUP: tokens and certificates were read again")
        assert trusted(endpoint, second) == (True, True)
        assert trusted(endpoint, first) == (False, False)
        key.write_text("no key", encoding="utf-8")
        hang_up(process, "ERROR SIGHUP: tokens and certificates stay as they are")
        assert trusted(endpoint, second) == (True, True)
        stopped(process)


def test_a_sighup_makes_the_broker_program_read_the_client_ca_file_again(tmp_path: Path) -> None:
    """A client of a removed CA cannot connect any more."""
    broker, ca = new_identity("127.0.0.1"), tmp_path / "ca.pem"
    certificate, key = broker.write(tmp_path)
    first, second = new_identity("first"), new_identity("second")
    ca.write_bytes(first.certificate)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(ca))
    with running(*options, **INFO) as (process, endpoint):
        assert trusted(endpoint, broker, first) == (True, True)
        assert trusted(endpoint, broker, second) == (False, False)
        ca.write_bytes(second.certificate)
        hang_up(process, "INFO SIGHUP: tokens and certificates were read again")
        assert trusted(endpoint, broker, second) == (True, True)
        assert trusted(endpoint, broker, first) == (False, False)
        stopped(process)


def trusted(endpoint: str, identity: Identity, client: Identity | None = None) -> tuple[bool, bool]:
    """Return whether gRPC and HTTP serve this certificate to new connections of this client."""
    certificate = identity.certificate
    key, chain = (None, None) if client is None else (client.key, client.certificate)
    credentials = grpc.ssl_channel_credentials(certificate, key, chain)
    options = [("grpc.use_local_subchannel_pool", 1)]
    ends = {grpc.ChannelConnectivity.READY: True, grpc.ChannelConnectivity.TRANSIENT_FAILURE: False}
    states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
    with grpc.secure_channel(endpoint, credentials, options) as channel:
        channel.subscribe(states.put, try_to_connect=True)
        while (state := states.get(timeout=TIMEOUT)) not in ends:
            pass
        by_grpc = ends[state]
    context = ssl.create_default_context(cadata=certificate.decode())
    if client is not None:
        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(*client.write(Path(folder)))
    try:
        with urlopen(Request(f"https://{endpoint}/healthz"), timeout=TIMEOUT, context=context):
            by_http = True
    except OSError:
        by_http = False
    return by_grpc, by_http
