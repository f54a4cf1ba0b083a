"""`python -m pullstream_emulator` started with a file, variables, faults or a profile."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import grpc
import pytest

from pullstream_emulator.faults import Faults
from pullstream_protocol.errors import Aborted
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC
from tests.emulator.program import COMMAND, ends_well, error_of, refusal, running, started
from tests.emulator.wire import TIMEOUT, Wire, data_of

CONFIG = {
    "project": "test",
    "topics": [{"name": "orders"}],
    "subscriptions": [{"name": "billing", "topic": "orders", "ackDeadlineSeconds": 1}],
    "messages": [{"topic": "orders", "text": "seed"}],
}


@contextmanager
def broker(*arguments: str, **variables: str) -> Iterator[tuple[Wire, str]]:
    """Yield a client of a broker in a separate process, and the broker's endpoint."""
    with running(*arguments, **variables) as (process, endpoint):
        wire = Wire(endpoint)
        yield wire, endpoint
        wire.close()
        ends_well(process)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "pubsub.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(path)


def test_the_emulator_program_creates_resources_of_its_config_file_and_environment(
    config: str,
) -> None:
    """A variable may contain resources that the file's subscription needs.

    The profile sets limits.
    """
    seeds = "test,refunds:payout:pushed~60/ordered+localhost#9/push"
    with broker("--config", config, "--profile", "emulator", PUBSUB_PROJECT1=seeds) as (wire, _):
        assert data_of(wire.pull()) == ["seed"]
        request = pubsub.ListSubscriptionsRequest(project="projects/test")
        listed = wire.call("ListSubscriptions", request).subscriptions
        assert sorted(
            (s.name, s.ack_deadline_seconds, s.enable_message_ordering) for s in listed
        ) == [
            (SUBSCRIPTION, 1, False),
            ("projects/test/subscriptions/payout", 10, False),
            ("projects/test/subscriptions/pushed", 60, True),
        ]
        assert [s.push_config.push_endpoint for s in listed if s.push_config.push_endpoint] == [
            "http://localhost:9/push"
        ]


def test_the_fault_option_of_the_emulator_program_sets_faults_from_the_start() -> None:
    """Each fault of the command line acts, and as often as requested."""
    faults = ["--fault", "error:GetTopic:ABORTED:times=2", "--fault", "error:Pull:UNAVAILABLE"]
    with broker(*faults) as (wire, _):
        wire.create()
        assert failures(wire, 3) == [True, True, False]
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            wire.pull()


def test_the_fault_seed_option_determines_which_calls_a_fault_with_a_probability_affects() -> None:
    """With the seed of another broker, the same calls fail."""
    fault = Faults(seed=7).error("GetTopic", Aborted(""), probability=0.5)
    with broker("--fault", "error:GetTopic:ABORTED:probability=0.5", "--fault-seed", "7") as (
        wire,
        _,
    ):
        wire.create()
        assert failures(wire, 30) == [fault.claim() for _ in range(30)]


def failures(wire: Wire, calls: int) -> list[bool]:
    """Return which of some calls end with ABORTED."""
    request = pubsub.GetTopicRequest(topic=TOPIC)
    errors = [wire.start("GetTopic", request).exception() for _ in range(calls)]
    assert all(error is None or error.code() is grpc.StatusCode.ABORTED for error in errors)
    return [error is not None for error in errors]


def test_the_emulator_program_serves_its_clock_and_history_over_http() -> None:
    """The API is available on the same port."""
    pytest.importorskip("aiohttp")
    with broker() as (wire, endpoint):
        wire.create_with("a")
        assert len(wire.pull()) == 1
        address = f"http://{endpoint}/v0"
        with urlopen(f"{address}/admin/clock:advance", b'{"seconds": 10}', TIMEOUT) as response:
            assert response.status == 200
        assert len(wire.pull(wait=False)) == 1
        with urlopen(f"{address}/events?kind=delivery,expiry", timeout=TIMEOUT) as response:
            events = json.load(response)["events"]
        assert [event["kind"] for event in events] == ["delivery", "expiry", "delivery"]


def test_with_the_max_bytes_option_a_publish_beyond_the_byte_limit_is_refused() -> None:
    """With --max-bytes the broker refuses messages instead of growing."""
    with broker("--max-bytes", "1k") as (wire, _):
        wire.create_with("x" * 600)
        with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
            wire.publish("x" * 600)
        assert len(wire.pull()) == 1


def test_with_the_return_leases_on_disconnect_option_leases_of_a_cut_stream_are_freed() -> None:
    """Without the option they would continue until the ack deadline."""
    with broker("--return-leases-on-disconnect") as (wire, _):
        wire.create_with("a")
        stream = wire.stream(stream_ack_deadline_seconds=600)
        assert stream.data(1) == ["a"]
        stream.cancel()
        assert data_of(wire.pull()) == ["a"]


def test_the_max_pull_messages_option_limits_the_response_to_a_pull() -> None:
    with broker("--max-pull-messages", "2") as (wire, _):
        wire.create_with("a", "b", "c")
        assert data_of(wire.pull()) == ["a", "b"]
        assert data_of(wire.pull()) == ["c"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--fault", "explode:Pull"], 2, "'explode:Pull': there is no fault 'explode'"),
        (["--fault", "drop:Sing"], 2, "method must be the name of an RPC"),
        (["--fault", "close-streams"], 2, "acts on open streams, and at the start none is open"),
        (["--profile", "strict"], 2, "'strict' is not one of 'production', 'emulator'"),
        (["--max-pull-messages", "0"], 2, "0 is not in the range 1<=x<=1000"),
        (["--max-bytes", "-1"], 2, "'-1' is not a number of bytes, such as 1048576, 512k"),
        (["--max-bytes", "10 apples"], 2, "'10 apples' is not a number of bytes"),
        (["--config", "missing.yaml"], 1, "Error: missing.yaml: No such file or directory"),
        (["--config", "{config}"], 1, "subscriptions[0]: Invalid ack deadline given"),
    ],
)
def test_the_emulator_program_explains_an_invalid_option_value_and_does_not_start(
    arguments: list[str], code: int, text: str, config: str
) -> None:
    """The error comes before the broker listens.

    Bad usage exits with 2, an unusable file with 1.
    """
    ended, explained = refusal(*(each.replace("{config}", config) for each in arguments))
    assert ended == code
    assert text in " ".join(explained.split())


def test_a_malformed_project_environment_variable_ends_the_program_with_one_line_of_error() -> None:
    """The exit code is 1, and the error has one line."""
    error = error_of(PUBSUB_PROJECT1="shop,,orders")
    assert error.startswith("Error: PUBSUB_PROJECT1: must have the form ")
    error = error_of(PUBSUB_PROJECT1="shop,orders:billing~700")
    assert error.startswith("Error: PUBSUB_PROJECT1: orders:billing~700: Invalid ")


@pytest.mark.skipif(sys.platform != "linux", reason="limits are read from /proc")
def test_the_emulator_program_raises_its_limit_of_open_files_to_the_hard_limit() -> None:
    """The soft limit becomes the hard limit.

    A shell's soft limit of 1,024 would limit the number of clients.
    """
    limited = ["bash", "-c", 'ulimit -Sn 256; ulimit -Hn 3000; exec "$@"', "bash", *COMMAND]
    with started(limited, {}) as (process, _):
        limits = Path(f"/proc/{process.pid}/limits").read_text(encoding="utf-8")
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3:5] == ["3000", "3000"]
        ends_well(process)


def test_with_the_receive_timeout_option_connections_of_half_sent_requests_are_closed() -> None:
    """The value 0 would close every connection."""
    with running("--receive-timeout", "0.2") as (process, endpoint):
        host, _, port = endpoint.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT) as connection:
            # The client sends no byte, so that the connection is closed without a reset.
            assert connection.recv(1) == b""
        ends_well(process)
    code, text = refusal("--receive-timeout", "0")
    assert code == 2
    assert "Invalid value for '--receive-timeout'" in text
