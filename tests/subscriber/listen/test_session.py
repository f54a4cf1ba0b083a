"""Special cases of the session: late answers, lost sessions, and the end of a publisher."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pullstream.listen.events import Reset
from pullstream.listen.session import ListenSession, ListenSettings, PollRetries
from pullstream.listen.subscription import Answered, Arrived, ChannelSubscription, Failed, Notice
from pullstream.runtime.outage_reporter import OutageReporter
from pullstream_protocol.errors import (
    Aborted,
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from pullstream_protocol.messages import channels_pb2 as channels

FIRST, SECOND = 7, 8


class Peer:
    """A session, and a publisher's answers as the test orders."""

    def __init__(self, **settings: Any) -> None:
        self._ids = iter("stuvwxyz")
        self.link = ListenSession(ListenSettings(**settings), new_id=lambda: next(self._ids))

    def subscribe(self, key: str | None = "a") -> ChannelSubscription:
        interest = ChannelSubscription("c", key, on_message=print)
        assert self.link.subscribe(interest)
        return interest

    def send(self, now: float = 100.0) -> tuple[Any, channels.CommandsRequest]:
        upcoming = self.link.next_batch(now)
        assert upcoming is not None
        return upcoming

    def answer(
        self, sent: tuple[Any, channels.CommandsRequest], incarnation: int, *, applied: bool = True
    ) -> list[Notice]:
        batch, request = sent
        response = channels.CommandsResponse(incarnation=incarnation, applied=applied)
        return self.link.batch_answered(batch, request.incarnation, response)

    def poll(self, now: float = 100.0) -> tuple[object, channels.PollRequest]:
        upcoming = self.link.next_poll(now)
        assert upcoming is not None
        return upcoming

    def bring(
        self, polled: tuple[object, channels.PollRequest], incarnation: int, *seqs: int
    ) -> list[Notice]:
        token, request = polled
        response = channels.PollResponse(incarnation=incarnation)
        for seq in seqs:
            response.items.add(seq=seq, channel="c", key="a").message.data = b"x"
        return self.link.poll_answered(token, request.incarnation, response)


def known(peer: Peer) -> ChannelSubscription:
    """Return a subscription that the publisher has confirmed."""
    interest = peer.subscribe()
    assert peer.answer(peer.send(), FIRST) == [Answered(interest, None)]
    return interest


def test_a_listener_ignores_a_late_poll_answer_for_a_lost_session() -> None:
    """The messages of that session are lost, and the Reset has reported that."""
    peer = Peer()
    known(peer)
    late = peer.poll()
    peer.subscribe("b")
    assert peer.answer(peer.send(), SECOND, applied=False) == [Reset()]
    assert peer.bring(late, FIRST, 1, 2) == []
    assert [type(each) for each in peer.bring(peer.poll(), SECOND, 1)] == [Arrived]


def test_a_late_answer_to_a_command_batch_does_not_restore_a_lost_listener_session() -> None:
    """No message is handed out twice."""
    peer = Peer()
    peer.subscribe()
    late = peer.send()
    assert peer.bring(peer.poll(), FIRST) == []
    assert [type(each) for each in peer.bring(peer.poll(), SECOND, 1)] == [Arrived]
    assert peer.answer(late, FIRST) == []
    _, request = peer.poll()
    assert (request.incarnation, request.max_processed_seq) == (SECOND, 1)


def test_a_listener_sends_a_new_poll_for_a_new_session_while_the_old_poll_is_unanswered() -> None:
    """The poll in flight belongs to the old session."""
    peer = Peer()
    known(peer)
    token, _ = peer.poll()
    peer.subscribe("b")
    peer.answer(peer.send(), SECOND, applied=False)
    assert not peer.link.is_polling(token)
    assert peer.poll()[1].incarnation == SECOND


def test_a_listener_without_subscriptions_reports_no_reset_when_its_session_is_lost() -> None:
    """If a session is lost while there are no subscriptions, no Reset is reported."""
    peer = Peer()
    known(peer)
    peer.link.unsubscribe("c", "a")
    peer.answer(peer.send(), FIRST)
    again = peer.subscribe()
    assert peer.answer(peer.send(), SECOND, applied=False) == []
    _, request = sent = peer.send()
    assert (request.replace, request.incarnation) == (True, SECOND)
    assert peer.answer(sent, SECOND) == [Answered(again, None)]


def test_a_listener_subscribe_cancelled_before_its_answer_ends_with_aborted() -> None:
    """Removed subscriptions are not sent again to the new session."""
    peer = Peer()
    known(peer)
    given_up = peer.subscribe("b")
    sent = peer.send()
    peer.link.unsubscribe("c", "b")
    reset, answered = peer.answer(sent, SECOND, applied=False)
    assert reset == Reset()
    assert isinstance(answered, Answered)
    assert answered.interest is given_up
    assert isinstance(answered.error, Aborted)


def test_a_listener_without_subscriptions_left_confirms_no_messages_of_a_late_poll() -> None:
    """The client does not confirm its messages, so a later subscriber gets them again."""
    peer = Peer()
    known(peer)
    polled = peer.poll()
    peer.link.unsubscribe("c", "a")
    assert peer.link.next_poll(100.0) is None
    assert peer.bring(polled, FIRST, 1) == []
    peer.subscribe()
    assert peer.poll()[1].max_processed_seq == 0


def test_a_listener_that_gave_up_its_retries_reconnects_with_a_new_subscriber_name() -> None:
    """The publisher may still run and would keep messages for the old name."""
    peer = Peer(give_up_after=5.0)
    interest = known(peer)
    token, request = peer.poll()
    assert peer.link.poll_failed(token, Unavailable("gone"), 0.0) == []
    token, _ = peer.poll()
    error = Unavailable("still gone")
    assert peer.link.poll_failed(token, error, 5.0) == [Failed(interest, error)]
    peer.subscribe()
    _, anew = peer.send()
    assert anew.subscriber_id != request.subscriber_id
    assert (anew.incarnation, anew.replace) == (0, True)


def test_a_permanent_error_of_a_poll_or_command_batch_ends_the_listener_session() -> None:
    peer = Peer(give_up_after=None)
    interest = known(peer)
    token, _ = peer.poll()
    error = NotFound("no such service")
    assert peer.link.poll_failed(token, error, 0.0) == [Failed(interest, error)]
    assert len(peer.link) == 0


def test_a_proxy_that_cuts_polls_without_messages_does_not_end_the_listener_session() -> None:
    """Some proxies cut every call that is silent for a minute."""
    peer = Peer(give_up_after=5.0)
    interest = known(peer)
    now = 0.0
    for _ in range(10):
        token, _ = peer.poll(now)
        assert peer.link.poll_failed(token, Unavailable("cut"), now + 60.0) == []
        now += 70.0
    # A working publisher would have answered before the deadline.
    token, _ = peer.poll(now)
    error = DeadlineExceeded("nobody there")
    assert peer.link.poll_failed(token, error, now + 60.0) == [Failed(interest, error)]


def test_a_listener_that_cannot_poll_keeps_its_session_alive_with_empty_command_batches() -> None:
    """The client sends an empty batch each minute while it has subscriptions."""
    peer = Peer()
    known(peer)
    peer.bring(peer.poll(100.0), FIRST)
    assert peer.link.next_due(may_poll=False) == 160.0
    peer.link.give_sign(159.9)
    assert peer.link.next_batch(159.9) is None
    peer.link.give_sign(160.0)
    sent = peer.send(160.0)
    assert (list(sent[1].commands), sent[1].replace) == ([], False)
    assert peer.answer(sent, FIRST) == []
    assert peer.link.next_due(may_poll=False) == 220.0
    peer.link.unsubscribe("c", "a")
    peer.answer(peer.send(161.0), FIRST)
    assert peer.link.next_due(may_poll=False) is None
    peer.link.give_sign(300.0)
    assert peer.link.next_batch(300.0) is None


def test_the_failure_of_a_channel_key_ends_only_the_subscriptions_of_that_key() -> None:
    peer = Peer()
    first = known(peer)
    second, third = peer.subscribe("b"), peer.subscribe(None)
    token, request = peer.poll()
    response = channels.PollResponse(incarnation=FIRST)
    response.items.add(seq=1, channel="c", key="b", failure="over")
    response.items.add(seq=2, channel="other", failure="over")
    response.items.add(seq=3, channel="c", failure="over")
    failed = peer.link.poll_answered(token, request.incarnation, response)
    assert [each.interest for each in failed if isinstance(each, Failed)] == [second, first, third]
    assert len(peer.link) == 0


def test_a_refused_channel_subscription_gets_the_refusal_and_then_ends_as_failed() -> None:
    peer = Peer()
    interest = peer.subscribe()
    batch, _ = peer.send()
    error = InvalidArgument("no")
    assert peer.link.batch_failed(batch, error, 0.0) == [
        Answered(interest, error),
        Failed(interest, error),
    ]


def test_closing_a_listener_session_fails_the_subscribe_calls_that_wait_for_an_answer() -> None:
    peer = Peer()
    interest = peer.subscribe()
    (answered,) = peer.link.close()
    assert isinstance(answered, Answered)
    assert answered.interest is interest
    assert isinstance(answered.error, Cancelled)
    assert not interest.is_wanted


def test_a_listener_session_retries_with_growing_pauses_until_its_time_limit() -> None:
    outage = OutageReporter(logging.getLogger("pullstream.listen"))
    retries = PollRetries(give_up_after=1.0, outage=outage)
    now, attempts = 0.0, 0
    while (due := retries.failed(Unavailable("x"), now)) is not None:
        assert now < due <= 1.0
        now, attempts = due, attempts + 1
    assert now == 1.0
    assert attempts > 3
    retries.succeeded()
    assert retries.failed(Unavailable("x"), 50.0) is not None


def test_a_listener_logs_one_warning_for_an_outage_of_its_polls_and_command_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A poll that was cut after some time had reached its server. It is no part of an outage."""
    outage = OutageReporter(logging.getLogger("pullstream.listen"))
    batches, polls = PollRetries(None, outage), PollRetries(None, outage)
    for now in (0.0, 60.0, 120.0):
        polls.begin(now)
        polls.failed(Unavailable("cut"), now + 59.0)
    assert caplog.messages == []
    for now in (200.0, 202.0, 204.0, 206.0):
        for retries in (batches, polls):
            retries.begin(now)
            retries.failed(Unavailable("refused"), now)
    (warning,) = caplog.messages
    assert "refused" in warning
