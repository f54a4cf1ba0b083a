"""The answers of a broker that still reads its data directory."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
from click.testing import CliRunner

from pullstream_emulator import cli
from pullstream_emulator.config import ConfigError
from pullstream_emulator.net.loading_server import LOADING, LoadingServer
from pullstream_protocol.rpcs import BY_METHOD
from tests.emulator.wire import TIMEOUT
from tests.free_port import free_port

HOST = "127.0.0.1"


@pytest.fixture
def port() -> int:
    return free_port()


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{HOST}:{port}{path}", timeout=TIMEOUT) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_loading_broker_is_alive_and_not_ready_and_frees_its_port_afterwards(port: int) -> None:
    with LoadingServer(HOST, port, None):
        assert answer(port, "/healthz") == (200, "Ok\n")
        assert answer(port, "/readyz") == (503, f"{LOADING}\n")
        assert answer(port, "/") == (503, f"{LOADING}\n")
        assert answer(port, "/v1/projects/p/topics") == (503, f"{LOADING}\n")
    with socket.create_server((HOST, port)):
        pass


def test_a_grpc_client_of_a_loading_broker_gets_unavailable(port: int) -> None:
    with LoadingServer(HOST, port, None), grpc.insecure_channel(f"{HOST}:{port}") as channel:
        call: Any = channel.unary_unary(BY_METHOD["GetTopic"].path)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=TIMEOUT)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_silent_or_malformed_request_does_not_disturb_a_loading_broker(port: int) -> None:
    with (
        LoadingServer(HOST, port, None),
        socket.create_connection((HOST, port)),
        socket.create_connection((HOST, port)) as malformed,
    ):
        malformed.sendall(b"\x00\n")
        assert malformed.recv(1) == b""
        assert answer(port, "/healthz") == (200, "Ok\n")


def test_the_port_of_another_program_is_refused_before_loading(port: int) -> None:
    with (
        socket.create_server((HOST, port)),
        pytest.raises(OSError, match=f"cannot listen on {HOST}:{port}"),
        LoadingServer(HOST, port, None),
    ):
        pass


def test_a_host_with_an_invalid_name_is_refused_before_loading(port: int) -> None:
    with (
        pytest.raises(OSError, match=r"cannot listen on a\.\.b: "),
        LoadingServer("a..b", port, None),
    ):
        pass


def test_an_unexpected_error_of_the_thread_is_raised(port: int) -> None:
    with pytest.raises(OverflowError), LoadingServer(HOST, 1 << 16, None):
        pass


def test_the_program_answers_probes_while_it_loads_its_data_directory(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []

    def load(options: object) -> None:
        answers.append(answer(port, "/readyz"))
        raise ConfigError("loaded")

    monkeypatch.setattr(cli, "_broker", load)
    arguments = ["--host", HOST, "--port", str(port), "--data-dir", str(tmp_path)]
    ran = CliRunner().invoke(cli.command, arguments)
    assert "loaded" in ran.stderr
    assert answers == [(503, f"{LOADING}\n")]
