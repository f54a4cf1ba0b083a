"""Work that runs on a client, and its end when the client is closed."""

from __future__ import annotations

from pullstream.futures import RunningFuture, ShutdownMode
from pullstream.rpc.background_client import BackgroundClient


class Running(RunningFuture):
    """Ends when it is stopped, and records that."""

    def __init__(self, told: list[RunningFuture]) -> None:
        super().__init__()
        self._told = told

    def begin_close(self, timeout: float | None = None, mode: ShutdownMode | None = None) -> None:
        self._told.append(self)
        self.set_result(True)

    def runs_here(self) -> bool:
        return False


class GivingBack(Running):
    ends_last = True


def test_activities_that_nack_messages_are_the_last_that_a_closing_client_ends() -> None:
    """Otherwise a fetch could get messages just before its own end that nothing settles."""
    told: list[RunningFuture] = []
    client = BackgroundClient(endpoint="localhost:1")
    kinds = [GivingBack, Running] * 10
    running = [client._keep(lambda kind=kind: kind(told)) for kind in kinds]  # type: ignore[misc]
    client.close()
    assert set(told) == set(running)
    assert [one.ends_last for one in told] == [False] * 10 + [True] * 10
