"""The parent with real children, in cases that the command line's tests cannot see."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.worker.job import Job
from pullstream.worker.process import ChildProcess
from pullstream.worker.scoreboard import Score
from pullstream.worker.supervisor import Row, Supervisor
from pullstream_emulator import Emulator

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/billing"
JOB = Job("json:loads", SUBSCRIPTION, {}, 1, 10, None, 0.1, 5.0)


class Shown:
    """A view that records its calls, and may raise."""

    relays = False

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.rows: list[Row] = []
        self.remarks: list[str] = []

    def show(self, rows: Sequence[Row], total: Score) -> None:
        self.rows = list(rows)
        if self.error is not None:
            raise self.error

    def remark(self, text: str) -> None:
        self.remarks.append(text)

    def printed(self, text: str) -> None:
        raise AssertionError("nothing is relayed")


@pytest.fixture(autouse=True)
def subscription(pubsub_emulator: Emulator) -> None:
    with TopicAdminClient() as topics, SubscriberClient() as client:
        topics.create_topic(name=TOPIC)
        client.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC})


def test_an_output_error_of_the_worker_is_raised_after_all_its_processes_have_ended() -> None:
    """The reader of a pipe may have ended. Signal handlers are restored."""
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    view = Shown(BrokenPipeError("nobody reads"))
    with pytest.raises(BrokenPipeError, match="nobody reads"):
        Supervisor(JOB, view, processes=2, shutdown_timeout=10).run()
    assert [row.state for row in view.rows] == ["ended", "ended"]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_the_worker_supervisor_retries_to_start_a_process_that_could_not_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system may be short of processes or memory for a while."""
    attempts: list[object] = []

    def none_at_first(*args: object, **kwargs: object) -> object:
        attempts.append(args)
        if len(attempts) == 1:
            raise BlockingIOError("no more processes")
        supervisor._inbox.put(lambda: supervisor._signalled(signal.SIGTERM))
        return ChildProcess(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("pullstream.worker.supervisor.ChildProcess", none_at_first)
    view = Shown()
    supervisor = Supervisor(JOB, view, processes=1, shutdown_timeout=10)
    assert supervisor.run() == 0
    assert len(attempts) == 2
    assert view.remarks[0] == "process 1 cannot be started: no more processes"
    assert "it restarts in" in view.remarks[1]
