"""gRPC's health service: Check and Watch, without a token."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_emulator.monitoring.health import Health, HealthHandlers
from pullstream_protocol.clock import ManualClock
from tests.emulator.wire import TIMEOUT
from tests.threads import on_threads

SERVING = health_pb2.HealthCheckResponse.SERVING


def stub(channel: grpc.Channel) -> health_pb2_grpc.HealthStub:
    return health_pb2_grpc.HealthStub(channel)


def test_the_health_service_reports_broker_and_services_as_serving(
    clock: ManualClock,
) -> None:
    """A probe needs no token. An unknown service is an error, as the protocol asks."""
    access = Access({"secret": Principal("root")})
    with (
        Emulator(clock=clock, access=access) as emulator,
        grpc.insecure_channel(emulator.endpoint) as channel,
    ):
        for service in ("", "google.pubsub.v1.Publisher"):
            request = health_pb2.HealthCheckRequest(service=service)
            assert stub(channel).Check(request, timeout=TIMEOUT).status == SERVING
        request = health_pb2.HealthCheckRequest(service="nope")
        with pytest.raises(grpc.RpcError) as refused:
            stub(channel).Check(request, timeout=TIMEOUT)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        found = next(stub(channel).Watch(request, timeout=TIMEOUT))
        assert found.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def test_a_grpc_health_watch_reports_the_shutdown_of_the_broker_as_not_serving(
    clock: ManualClock,
) -> None:
    """The call then ends, so it does not delay the end of the broker."""
    emulator = Emulator(clock=clock)
    emulator.start()
    with grpc.insecure_channel(emulator.endpoint) as channel:
        seen = []
        came = threading.Event()
        codes = []

        def watch() -> None:
            try:
                request = health_pb2.HealthCheckRequest()
                for response in stub(channel).Watch(request, timeout=TIMEOUT):
                    seen.append(response.status)
                    came.set()
            except grpc.RpcError as error:
                codes.append(error.code())

        with on_threads(watch):
            assert came.wait(TIMEOUT)
            emulator.stop()
        assert seen == [SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]
        assert codes == [grpc.StatusCode.UNAVAILABLE]


def test_a_grpc_health_watch_reports_a_shutdown_that_began_during_its_first_response() -> None:
    """The first status is being written when the broker begins to stop; a second one follows."""
    health = Health(None)
    written = []

    class Ended(Exception):
        pass

    class Context:
        async def write(self, response: Any) -> None:
            written.append(response.status)
            health.stop()

        async def abort(self, code: grpc.StatusCode, details: str, _: Any) -> None:
            raise Ended(code)

    details = SimpleNamespace(method="/grpc.health.v1.Health/Watch")
    handler = HealthHandlers(health).service(details)
    with pytest.raises(Ended):
        asyncio.run(handler.unary_stream(health_pb2.HealthCheckRequest(), Context()))
    assert written == [SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]
