"""The check of the subscription before Spark starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pullstream.spark.errors import FailureCause, IngestError
from pullstream.spark.ingest.subscription_check import check_subscription
from pullstream.spark.receiving.outage_note import Outage
from pullstream.spark.settings import IngestSettings
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import (
    DeadlineExceeded,
    NotFound,
    PermissionDenied,
    RpcError,
    Unauthenticated,
    Unavailable,
)
from pullstream_protocol.messages import pubsub_pb2 as pubsub

NAME = "projects/p/subscriptions/rows"
START = 1_700_000_000.0
GOOD = pubsub.Subscription(name=NAME)


class Server:
    """Answers with these errors or settings, and then again with the last one."""

    def __init__(self, *answers: RpcError | pubsub.Subscription) -> None:
        self._answers = list(answers)
        self.asked = 0

    def get_subscription(
        self, *, subscription: str, retry: None, timeout: float
    ) -> pubsub.Subscription:
        assert (subscription, timeout) == (NAME, 2.0)
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, RpcError):
            raise answer
        return answer

    @contextmanager
    def connected(self) -> Iterator[Server]:
        yield self


def check(
    tmp_path: Path, server: Server, *, must_end: bool = True, stop_after: float = 1e9
) -> list[Outage | None]:
    """Check the subscription, and return the outages that were told."""
    clock = ManualClock(START)
    told: list[Outage | None] = []

    def pause(seconds: float) -> bool:
        clock.advance(seconds)
        return clock.now() >= START + stop_after

    check_subscription(
        IngestSettings(subscription=NAME, spool_dir=tmp_path, endpoint="localhost:1"),
        must_end=must_end,
        pause=pause,
        tell=told.append,
        clock=clock,
        connect=server.connected,
    )
    return told


@pytest.mark.parametrize("answer", [GOOD, PermissionDenied("no right to read settings")])
def test_a_subscription_that_may_be_read_passes_the_check_at_once(
    tmp_path: Path, answer: RpcError | pubsub.Subscription
) -> None:
    """Google's role for subscribers has no right to read settings, and the stream will tell."""
    server = Server(answer)
    assert check(tmp_path, server) == []
    assert server.asked == 1


def test_few_delivery_attempts_of_the_dead_letter_policy_are_reported_before_an_ingest_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each kill may use up one attempt of messages that are in the table by then."""
    for attempts in (10, 5):
        policy = pubsub.DeadLetterPolicy(max_delivery_attempts=attempts)
        check(tmp_path, Server(pubsub.Subscription(name=NAME, dead_letter_policy=policy)))
    (record,) = caplog.records
    assert record.message.startswith(f"{NAME}: the dead-letter policy allows 5 delivery attempts")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (NotFound("Resource not found"), "the job cannot start: NotFound: 404 Resource not found"),
        (Unauthenticated("who are you"), "the job cannot start: Unauthenticated: 401 who are you"),
        (
            pubsub.Subscription(push_config=pubsub.PushConfig(push_endpoint="http://a")),
            f"the job cannot read {NAME}: it pushes its messages elsewhere",
        ),
        (
            pubsub.Subscription(bigquery_config=pubsub.BigQueryConfig(table="p.d.t")),
            f"the job cannot read {NAME}: it pushes its messages elsewhere",
        ),
        (
            pubsub.Subscription(cloud_storage_config=pubsub.CloudStorageConfig(bucket="b")),
            f"the job cannot read {NAME}: it writes its messages to Cloud Storage",
        ),
        (
            pubsub.Subscription(detached=True),
            f"the job cannot read {NAME}: it is detached from its topic",
        ),
    ],
)
def test_a_subscription_that_gives_no_messages_is_an_error_of_the_source(
    tmp_path: Path, answer: RpcError | pubsub.Subscription, text: str
) -> None:
    """Nothing is waited for."""
    server = Server(answer)
    with pytest.raises(IngestError) as caught:
        check(tmp_path, server)
    assert str(caught.value).startswith(text)
    assert caught.value.cause is FailureCause.SOURCE
    assert server.asked == 1


def test_the_check_of_a_subscription_waits_for_its_server_and_tells_the_outage(
    tmp_path: Path,
) -> None:
    """The outage begins with the first failure and has its error."""
    server = Server(Unavailable("refused"), DeadlineExceeded("too late"), GOOD)
    first = Outage(START, "UNAVAILABLE: refused")
    assert check(tmp_path, server) == [first, first, None]


def test_a_job_for_the_available_messages_gives_up_after_a_minute_without_a_server(
    tmp_path: Path,
) -> None:
    """The error has the reason. Another job waits on, until it is stopped."""
    server = Server(Unavailable("refused"))
    with pytest.raises(IngestError, match=r"cannot start: Unavailable: 503 refused") as caught:
        check(tmp_path, server)
    assert "The server at localhost:1 did not answer for a minute" in str(caught.value)
    assert "--endpoint" in str(caught.value)
    assert caught.value.cause is FailureCause.SOURCE
    assert server.asked == 61
    patient = Server(Unavailable("refused"))
    assert len(check(tmp_path, patient, must_end=False, stop_after=3600.0)) == 3600
