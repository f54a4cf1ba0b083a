"""What the unconfirmed messages of a publisher wait for: warnings, and the texts of errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from pullstream import (
    BatchSettings,
    PublisherClient,
    PublisherOptions,
)
from pullstream.exceptions import TimeoutError
from pullstream.hooks import PublisherHooks
from pullstream.publisher.encoding import encode_data
from pullstream.publisher.outage import PublishOutage
from pullstream.publisher.sender import PublishSender
from pullstream.publisher.settings import PublishPolicy
from pullstream.rpc.rpcs import Rpcs, begin_or_wait
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import NotFound, ResourceExhausted, Unavailable
from tests.threads import on_threads

from .conftest import TOPIC, Server, limited_client

TIMEOUT = 10
NOBODY = "127.0.0.1:1"


# ---- the state of the server -------------------------------------------------------------------


def test_a_server_outage_is_reported_by_the_publisher_once_after_three_seconds() -> None:
    """The outage begins with the first request that has no answer."""
    outage = PublishOutage()
    assert outage.report_due is None
    outage.sent(100.0)
    outage.sent(102.0)
    assert outage.report_due == 103.0
    assert not outage.must_report(102.9)
    assert outage.must_report(103.0)
    assert outage.report_due is None
    assert not outage.must_report(110.0)
    assert outage.answered(111.0, others_wait=False)
    assert outage.report_due is None
    outage.sent(112.0)
    assert not outage.answered(113.0, others_wait=True)
    assert outage.report_due == 116.0


def test_the_publishers_outage_text_tells_silent_unreachable_and_refusing_servers_apart() -> None:
    """The server is silent, cannot be reached, or refuses the requests."""
    outage = PublishOutage()
    outage.sent(0.0)
    assert outage.state(5.0) == "the server has not answered for 5 s"
    outage.failed(Unavailable("no route"))
    assert outage.state(5.0) == "the server has been unreachable for 5 s (503 no route)"
    outage.failed(ResourceExhausted("quota"))
    assert outage.state(6.0) == "the server has refused requests for 6 s (429 quota)"


# ---- the warning -------------------------------------------------------------------------------


class Warnings(logging.Handler):
    """Collects the texts of log records, and lets a test wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.came = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.came.release()

    def next(self) -> str:
        assert self.came.acquire(timeout=TIMEOUT), "nothing was logged"
        return self.texts[-1]


@pytest.fixture
def warnings() -> Iterator[Warnings]:
    handler = Warnings()
    log = logging.getLogger("pullstream.publisher")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


class Attempts(PublisherHooks):
    """Lets a test wait for the end of an attempt."""

    def __init__(self) -> None:
        self.ended = threading.Semaphore(0)

    def request_done(
        self, topic: str, messages: int, size: int, seconds: float, error: BaseException | None
    ) -> None:
        self.ended.release()


def test_the_publisher_logs_an_unreachable_server_with_the_number_of_waiting_messages(
    warnings: Warnings,
) -> None:
    """The text has the number of messages and the time for which they are retried."""
    clock, attempts = ManualClock(), Attempts()
    with grpc.insecure_channel(NOBODY) as channel:
        sender = PublishSender(
            Rpcs(channel, clock), BatchSettings(max_messages=1), PublisherOptions(), (attempts,)
        )
        publish = sender.publishing_method(may_block=True)
        future = publish(
            TOPIC, "", encode_data(b"x"), PublishPolicy(first_pause=60, give_up_after=100)
        )
        assert attempts.ended.acquire(timeout=TIMEOUT)
        assert warnings.texts == []
        clock.advance(3)
        text = warnings.next()
        assert text.startswith("the server has been unreachable for 3 s (503 failed to connect")
        assert text.endswith("; 1 messages are not confirmed, and they are retried for up to 97 s")
        with pytest.raises(
            TimeoutError, match=r"^not confirmed after 0 s: the server has been unr"
        ):
            future.result(0)
        with on_threads(sender.close):
            assert "the end of the publisher waits for them for up to 97 s" in warnings.next()
            # The last attempt fails, too, perhaps after the end of the wait.
            clock.advance(100)
        assert isinstance(future.exception(TIMEOUT), Unavailable)


def test_the_publisher_logs_the_outage_of_a_server_that_does_not_answer_its_requests(
    server: Server, warnings: Warnings
) -> None:
    """An answer of the server ends the outage."""
    clock = ManualClock()
    server.gate.clear()
    with grpc.insecure_channel(server.endpoint) as channel:
        sender = PublishSender(
            Rpcs(channel, clock), BatchSettings(max_messages=1), PublisherOptions()
        )
        publish = sender.publishing_method(may_block=True)
        future = publish(TOPIC, "", encode_data(b"x"), PublishPolicy())
        server.wait_for_calls(1)
        clock.advance(3)
        assert warnings.next().startswith("the server has not answered for 3 s; 1 messages are not")
        with pytest.raises(TimeoutError, match="the server has not answered for 3 s; the request"):
            future.exception(0)
        server.gate.set()
        assert future.result(TIMEOUT) == "1"
        sender.close(TIMEOUT)


def test_the_publishers_outage_begins_before_its_request_is_sent(
    server: Server, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may have the request before the publisher's thread goes on."""
    clock = ManualClock()
    server.gate.clear()

    def begin_slowly(*arguments: Any) -> Any:
        call = begin_or_wait(*arguments)
        clock.advance(3)
        return call

    monkeypatch.setattr("pullstream.publisher.sender.begin_or_wait", begin_slowly)
    with grpc.insecure_channel(server.endpoint) as channel:
        sender = PublishSender(
            Rpcs(channel, clock), BatchSettings(max_messages=1), PublisherOptions()
        )
        future = sender.publishing_method(may_block=True)(
            TOPIC, "", encode_data(b"x"), PublishPolicy()
        )
        assert warnings.next().startswith("the server has not answered for 3 s; 1 messages are not")
        server.gate.set()
        assert future.result(TIMEOUT) == "1"
        sender.close(TIMEOUT)


def test_the_publisher_logs_no_outage_if_the_server_answers_within_three_seconds(
    server: Server, warnings: Warnings
) -> None:
    """A refusal is an answer, too."""
    clock = ManualClock()
    server.fail = [None, NotFound("none")]
    with grpc.insecure_channel(server.endpoint) as channel:
        sender = PublishSender(
            Rpcs(channel, clock), BatchSettings(max_messages=1), PublisherOptions()
        )
        publish = sender.publishing_method(may_block=True)
        assert publish(TOPIC, "", encode_data(b"x"), PublishPolicy()).result(TIMEOUT)
        assert publish(TOPIC, "", encode_data(b"x"), PublishPolicy()).exception(TIMEOUT)
        clock.advance(60)
        sender.close(TIMEOUT)
    assert [text for text in warnings.texts if "the server has" in text] == []


def test_stopping_the_publisher_logs_the_number_of_messages_without_an_answer(
    warnings: Warnings,
) -> None:
    """`stop` does not wait, so the text has the time of the retries."""
    attempts = Attempts()
    publisher = PublisherClient(BatchSettings(max_messages=1), endpoint=NOBODY, hooks=attempts)
    publisher.publish(TOPIC, b"x")
    assert attempts.ended.acquire(timeout=TIMEOUT)
    publisher.stop()
    assert "1 messages are not confirmed, and they are retried for up to" in warnings.next()
    publisher.close(0.01)


# ---- the error of a wait -----------------------------------------------------------------------


def test_the_timeout_error_of_a_publish_future_says_that_its_batch_was_not_sent_yet(
    server: Server,
) -> None:
    """Nobody has waited before, so the batch is still open when the future is asked."""
    publisher = server.connect(BatchSettings(max_latency=60))
    publisher.publish(TOPIC, b"x")
    waits_for = publisher.publish(TOPIC, b"x")._outcome.waits_for
    assert "the batch is open, and is sent " in waits_for()


def test_the_timeout_error_of_a_publish_future_names_an_earlier_message_of_its_key(
    server: Server,
) -> None:
    """The later message of the key was not sent."""
    server.gate.clear()
    options = PublisherOptions(enable_message_ordering=True)
    publisher = server.connect(BatchSettings(max_messages=1), options)
    publisher.publish(TOPIC, b"first", "k")
    server.wait_for_calls(1)
    with pytest.raises(TimeoutError, match="an earlier message of the ordering key is not confirm"):
        publisher.publish(TOPIC, b"second", "k").result(0.01)


def test_the_timeout_error_of_publish_many_has_the_number_of_unconfirmed_messages(
    server: Server,
) -> None:
    """The confirmed ones do not count."""
    server.gate.clear()
    future = server.connect().publish_many(TOPIC, [b"x"] * 1500)
    with pytest.raises(TimeoutError, match="1500 of 1500 messages wait: the server has not answer"):
        future.result(0.01)


def test_the_timeout_error_of_a_publish_future_names_flow_control_as_the_cause(
    server: Server,
) -> None:
    """The message is accepted, and waits for room."""
    server.gate.clear()
    publisher = limited_client(server)
    first, second = publisher.publish(TOPIC, b"x"), publisher.publish(TOPIC, b"y")
    with pytest.raises(TimeoutError, match="the limits of flow control leave no room for the mess"):
        second.result(0.01)
    server.gate.set()
    assert (first.result(TIMEOUT), second.result(TIMEOUT)) == ("1", "2")
    publisher.admin.close(TIMEOUT)
