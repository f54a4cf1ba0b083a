"""A broker on a manual clock, and a client for each protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from pullstream_emulator import Emulator
from pullstream_protocol.clock import ManualClock
from tests.contract.channel_fixtures import bare as bare
from tests.contract.channel_fixtures import broker as broker
from tests.contract.channel_fixtures import client as client
from tests.contract.channel_fixtures import early_answers as early_answers
from tests.contract.channel_fixtures import listener as listener
from tests.contract.channel_fixtures import recorder as recorder
from tests.contract.face import Face
from tests.contract.following import Followed, followed
from tests.contract.grpc_face import GrpcFace
from tests.contract.http_face import HttpFace

FACES: dict[str, Callable[[str], Face]] = {"grpc": GrpcFace, "http": HttpFace}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock, rest=True) as emulator:
        yield emulator


@pytest.fixture
def here(emulator: Emulator) -> Iterator[Followed]:
    with followed(emulator) as here:
        yield here


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest, emulator: Emulator) -> Iterator[Face]:
    """Yield a client of the broker over one protocol. Every test of the suite runs with each."""
    face = open_face(request.param, emulator)
    yield face
    face.close()


@pytest.fixture
def foreign() -> Iterator[str]:
    """Yield the endpoint of a gRPC server that is not a pullstream broker and lacks its calls."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def open_face(name: str, emulator: Emulator) -> Face:
    return FACES[name](emulator.endpoint)
