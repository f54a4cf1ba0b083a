"""The rules of requests: size, order, retries, and the futures that get the results."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream.ack_future import AckFuture
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus
from pullstream.streaming.ack_lease_keepalive import KEEP_AFTER, KEEP_FOR
from pullstream.streaming.ack_requests import (
    ACK_RETRY_FOR,
    NACK_RETRY_FOR,
    TRANSIENT_CODES,
    AckRequest,
    AckResult,
    Purpose,
    RequestKind,
)
from pullstream.streaming.outbox import MAX_IDS, Outbox
from pullstream_protocol import errors
from pullstream_protocol.messages import pubsub_pb2 as pubsub

# https://cloud.google.com/pubsub/quotas
SERVERS_LIMIT = 512 * 1024
LONGEST_NAME = "projects/" + "p" * 30 + "/subscriptions/" + "s" * 255
UNAVAILABLE = errors.Unavailable("down")


def everything(outbox: Outbox, now: float = 0.0) -> list[AckRequest]:
    """Return every request that is due."""
    requests = []
    while (request := outbox.next_request(now)) is not None:
        requests.append(request)
    return requests


def tracked(outbox: Outbox, purpose: Purpose, ack_id: str, seconds: int = 0) -> AckFuture:
    """Add one disposition and return the future of its result."""
    future = AckFuture()
    outbox.add_ack_ids(purpose, [ack_id], seconds)
    outbox.track_future(purpose, ack_id, future, seconds)
    return future


def error_of(future: AckFuture) -> AcknowledgeError:
    error = future.exception(timeout=0)
    assert isinstance(error, AcknowledgeError)
    return error


# ---- sending -----------------------------------------------------------------------------------


def test_the_ack_ids_of_several_ack_calls_share_one_request() -> None:
    """The ids of several calls share a request, in order."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ["a", "b"])
    outbox.add_ack_ids(Purpose.USER, ["x"], 0)
    outbox.add_ack_ids(Purpose.ACK, ["c"])
    acks, nacks = everything(outbox)
    assert (acks.is_ack, acks.ack_ids) == (True, ["a", "b", "c"])
    assert (nacks.is_ack, nacks.seconds, nacks.ack_ids) == (False, 0, ["x"])
    assert outbox.is_empty


def test_ack_deadline_changes_of_different_length_are_sent_in_different_requests() -> None:
    """A request has one deadline for all its ids."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.USER, ["a"], 10)
    outbox.add_ack_ids(Purpose.USER, ["b"], 20)
    assert [(r.seconds, r.ack_ids) for r in everything(outbox)] == [(10, ["a"]), (20, ["b"])]


def test_exactly_once_receipts_share_no_request_with_other_ack_deadline_changes() -> None:
    """The receipt's answer is read differently, also after a retry or a split."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.USER, ["extended"], 60)
    outbox.add_ack_ids(Purpose.RECEIPT, ["a", "b"], 60)
    outbox.add_ack_ids(Purpose.RECEIPT, ["c"], 60)
    extension, receipt = everything(outbox)
    assert (extension.is_receipt, extension.ack_ids) == (False, ["extended"])
    assert (receipt.is_receipt, receipt.ack_ids) == (True, ["a", "b", "c"])
    outbox.record_answer(receipt, UNAVAILABLE, 0.0)
    (again,) = everything(outbox, 1.0)
    assert again.is_receipt
    outbox.record_answer(again, errors.InvalidArgument("one is no id"), 1.0)
    halves = everything(outbox, 1.0)
    assert [(half.is_receipt, half.ack_ids) for half in halves] == [
        (True, ["a"]),
        (True, ["b", "c"]),
    ]


def test_an_ack_request_records_the_time_of_its_last_sending() -> None:
    """The time of the last sending is kept to measure the duration of the call."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ["a"])
    (request,) = everything(outbox, 5.0)
    assert request.sent_at == 5.0
    outbox.record_answer(request, UNAVAILABLE, 6.0)
    (again,) = everything(outbox, 8.0)
    assert again.sent_at == 8.0


def test_ack_requests_and_ack_deadline_changes_are_sent_in_turn() -> None:
    """Many acknowledgements do not delay extensions."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, [str(number) for number in range(3 * MAX_IDS)])
    outbox.add_ack_ids(Purpose.USER, ["urgent"], 10)
    kinds = [request.is_ack for request in everything(outbox)]
    assert kinds == [True, False, True, True]


@given(
    st.lists(st.integers(1, 200_000), max_size=30),
    st.integers(1, 2 * MAX_IDS),
)
def test_no_ack_or_ack_deadline_request_exceeds_the_servers_size_limit(
    lengths: list[int], short_ids: int
) -> None:
    """No request exceeds the server's limit. All ids, of any length, are sent in order."""
    ack_ids = ["x" * length for length in lengths] + ["short"] * short_ids
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ack_ids)
    requests = everything(outbox)
    assert [ack_id for request in requests for ack_id in request.ack_ids] == ack_ids
    for request in requests:
        assert 1 <= len(request.ack_ids) <= MAX_IDS
        wire = pubsub.AcknowledgeRequest(subscription=LONGEST_NAME, ack_ids=request.ack_ids)
        assert wire.ByteSize() <= SERVERS_LIMIT


def test_ack_requests_have_as_many_ack_ids_as_the_servers_limits_allow() -> None:
    """2,500 short ids fit in one request, and as many long ids as the size limit allows."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ["x" * 180] * (MAX_IDS + 1))
    assert [len(request.ack_ids) for request in everything(outbox)] == [2_445, 56]


def test_an_ack_id_longer_than_the_request_size_limit_is_sent_in_a_request_of_its_own() -> None:
    """The server decides whether the id is too long. Waiting would not make it shorter."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ["a", "x" * 1_000_000, "b"])
    assert [len(request.ack_ids) for request in everything(outbox)] == [1, 1, 1]


# ---- retries -----------------------------------------------------------------------------------


def test_ack_requests_with_transient_failures_are_retried_after_growing_pauses() -> None:
    """The retry has the same ids and kind, and nothing is due earlier."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ["a", "b"])
    (request,) = everything(outbox)
    now = 0.0
    for attempt in range(8):
        answer = outbox.record_answer(request, UNAVAILABLE, now)
        assert answer.failed == {}
        due = outbox.next_due()
        assert due is not None
        bound = 0.1 * 2**attempt
        assert bound / 2 <= due - now <= bound
        assert everything(outbox, due - 0.01) == []
        assert not outbox.is_empty
        now = due
        (request,) = everything(outbox, now)
        assert (request.is_ack, request.ack_ids) == (True, ["a", "b"])
    outbox.record_answer(request, None, now)
    assert outbox.is_empty


@pytest.mark.parametrize(
    ("purpose", "seconds", "retry_for"),
    [
        (Purpose.ACK, 0, ACK_RETRY_FOR),
        (Purpose.USER, 0, NACK_RETRY_FOR),
        (Purpose.USER, 10, 10.0),
        (Purpose.USER, 500, 500.0),
    ],
)
def test_retries_of_ack_and_ack_deadline_requests_end_after_a_time_limit(
    purpose: Purpose, seconds: int, retry_for: float
) -> None:
    """A deadline change is useless after the end of the lease."""
    outbox = Outbox()
    future = tracked(outbox, purpose, "a", seconds)
    now = 0.0
    while (request := outbox.next_request(now)) is not None:
        outbox.record_answer(request, UNAVAILABLE, now)
        now = outbox.next_due() or now
    assert outbox.is_empty
    # The next pause would end too late. It is at most 30 s, and twice as long as all earlier ones
    # together.
    assert max(retry_for - 31, retry_for / 3 - 0.1) <= now <= retry_for
    assert error_of(future).error_code is AcknowledgeStatus.OTHER
    assert "down" in str(error_of(future))


def test_a_nack_with_any_delay_is_retried_only_until_the_lease_may_have_ended() -> None:
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.NACK, ["a"], 1)
    now = 0.0
    while (request := outbox.next_request(now)) is not None:
        outbox.record_answer(request, UNAVAILABLE, now)
        now = outbox.next_due() or now
    assert now >= NACK_RETRY_FOR / 3


def test_the_lease_of_a_message_is_extended_while_its_ack_waits_for_a_retry() -> None:
    """Leases of messages whose ack is retried are extended at intervals.

    Nothing else extends them, and the results of these extensions are ignored.
    """
    outbox = Outbox(keep_for=KEEP_FOR)
    future = tracked(outbox, Purpose.ACK, "a")
    extended_at, now = [], 0.0
    while not future.done():
        while (request := outbox.next_request(now)) is not None:
            if request.is_ack:
                outbox.record_answer(request, UNAVAILABLE, now)
            else:
                assert (request.seconds, request.ack_ids) == (KEEP_FOR, ["a"])
                extended_at.append(now)
                answer = outbox.record_answer(request, errors.NotFound("gone"), now)
                assert answer == AckResult()
        now = outbox.next_due() or now
    assert KEEP_AFTER <= extended_at[0] <= 3 * KEEP_AFTER
    between = [later - earlier for earlier, later in pairwise(extended_at)]
    assert min(between) >= KEEP_FOR / 3
    assert max(between) < KEEP_FOR
    # The last attempt may be one pause, of at most 30 s, before the end.
    assert extended_at[-1] > ACK_RETRY_FOR - 30 - KEEP_FOR
    assert outbox.is_empty


def test_the_lease_of_a_message_is_extended_while_its_ack_request_has_no_answer() -> None:
    """The call may take longer than the rest of a lease."""
    outbox = Outbox(keep_for=KEEP_FOR)
    outbox.add_ack_ids(Purpose.ACK, ["a"])
    hanging = outbox.next_request(0.0)
    assert hanging is not None
    assert outbox.next_due() == KEEP_AFTER
    assert outbox.next_request(KEEP_AFTER - 0.1) is None
    for time in (KEEP_AFTER, KEEP_AFTER + KEEP_FOR / 3):
        kept = outbox.next_request(time)
        assert kept is not None
        assert (kept.seconds, kept.ack_ids, kept.purpose) == (KEEP_FOR, ["a"], Purpose.KEEPALIVE)
        assert outbox.next_request(time) is None
    outbox.record_answer(hanging, None, 30.0)
    assert outbox.next_due() is None
    assert outbox.next_request(100.0) is None


def test_the_lease_of_a_message_is_extended_while_its_ack_cannot_be_sent() -> None:
    """All leases are extended in turns, and new waiting ones soon after they arrive."""
    outbox = Outbox(keep_for=9)
    kept: dict[float, list[str]] = {}

    def look(now: float) -> None:
        while (request := outbox.next_request(now, [RequestKind.DEADLINES])) is not None:
            kept.setdefault(now, []).extend(request.ack_ids)
            outbox.record_answer(request, None, now)

    outbox.add_ack_ids(Purpose.ACK, ["a"])
    look(0.0)
    assert outbox.next_due([RequestKind.DEADLINES]) == KEEP_AFTER
    look(1.0)
    outbox.add_ack_ids(Purpose.ACK, ["b"])
    for tenth in range(20, 60):
        look(tenth / 10)
    assert kept == {1.0: ["a"], 2.0: ["b"], 4.0: ["a", "b"]}
    whole = outbox.next_request(6.0)
    assert whole is not None
    assert (whole.is_ack, whole.ack_ids) == (True, ["a", "b"])
    assert outbox.next_due([RequestKind.DEADLINES]) == 6.0 + KEEP_AFTER


def test_the_answer_to_a_lease_extension_does_not_resolve_the_future_of_a_delayed_nack() -> None:
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.LEASE, ["a"], 10)
    lease = outbox.next_request(0.0)
    assert lease is not None
    future = AckFuture()
    outbox.track_future(Purpose.NACK, "a", future, 10)
    outbox.add_ack_ids(Purpose.NACK, ["a"], 10)
    outbox.record_answer(lease, None, 0.0)
    assert not future.done()
    nack = outbox.next_request(0.0)
    assert nack is not None
    outbox.record_answer(nack, None, 0.0)
    assert future.result(0) is AcknowledgeStatus.SUCCESS


def too_early(*ack_ids: str) -> errors.RpcError:
    named = dict.fromkeys(ack_ids, "TRANSIENT_FAILURE_UNORDERED_ACK_ID")
    return errors.FailedPrecondition("Some failed.", reason="ACKS", metadata=named)


def test_acks_refused_as_out_of_order_are_retried_together_with_the_earlier_acks() -> None:
    """Acks refused as too early are retried together with the earlier acks.

    One request for each would cost one pause for each.
    """
    outbox = Outbox(keep_for=KEEP_FOR)
    names = [f"{number:03}" for number in range(100)]
    futures = {name: tracked(outbox, Purpose.ACK, name) for name in names[:1]}
    first = outbox.next_request(0.0)
    assert first is not None
    others = []
    for name in names[1:]:
        futures[name] = tracked(outbox, Purpose.ACK, name)
        others.append(outbox.next_request(0.0))
    outbox.record_answer(first, UNAVAILABLE, 0.0)
    for request in reversed(others):
        assert request is not None
        outbox.record_answer(request, too_early(*request.ack_ids), 0.0)
    assert outbox.unanswered == 100
    through: set[str] = set()
    requests, now = 0, 0.0
    while (due := outbox.next_due()) is not None:
        now = due
        while (request := outbox.next_request(now)) is not None:
            requests += request.is_ack
            refused = [] if through or request is first else request.ack_ids
            if request.is_ack and not refused:
                through.update(request.ack_ids)
            outbox.record_answer(request, too_early(*refused) if refused else None, now)
    assert {name for name, future in futures.items() if future.done()} == set(names) == through
    assert requests < 10
    assert now < 2.0
    assert outbox.unanswered == 0
    assert outbox.is_empty


def test_the_lease_of_an_ack_refused_as_out_of_order_is_kept_until_its_retries_end() -> None:
    outbox = Outbox(keep_for=KEEP_FOR)
    old = tracked(outbox, Purpose.ACK, "old")
    request = outbox.next_request(0.0)
    assert request is not None
    outbox.record_answer(request, too_early("old"), 0.0)
    young, now = None, 0.0
    kept_at: list[float] = []
    while not old.done():
        now = outbox.next_due() or now
        if young is None and now > ACK_RETRY_FOR / 2:
            young = tracked(outbox, Purpose.ACK, "young")
        while (request := outbox.next_request(now)) is not None:
            if request.is_ack:
                outbox.record_answer(request, too_early(*request.ack_ids), now)
            elif "old" in request.ack_ids:
                kept_at.append(now)
    assert ACK_RETRY_FOR <= now < ACK_RETRY_FOR + 2
    assert error_of(old).error_code is AcknowledgeStatus.OTHER
    assert max(later - earlier for earlier, later in pairwise(kept_at)) < KEEP_FOR / 2
    assert young is not None
    assert not young.done()
    assert outbox.unanswered == 1
    assert list(outbox.abandon([], "it is over")) == ["young"]
    assert outbox.is_empty


def test_an_ack_refused_as_out_of_order_is_retried_longer_while_the_server_is_unavailable() -> None:
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ["a"])
    error: errors.RpcError = too_early("a")
    requests, now = 0, 0.0
    while now < 60.0:
        while (request := outbox.next_request(now)) is not None:
            requests += 1
            outbox.record_answer(request, error, now)
            error = UNAVAILABLE
        now = outbox.next_due() or now
    assert requests < 20
    assert not outbox.is_empty


def test_lease_extensions_are_sent_while_acks_wait_for_their_retry() -> None:
    """Leases also end while the server takes no acknowledgements."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ["a"])
    outbox.add_ack_ids(Purpose.USER, ["b"], 10)
    (request,) = everything(outbox)[:1]
    outbox.record_answer(request, UNAVAILABLE, 0.0)
    outbox.add_ack_ids(Purpose.USER, ["c"], 10)
    assert outbox.next_due([RequestKind.DEADLINES]) is None
    assert outbox.next_due() is not None
    change = outbox.next_request(5.0, [RequestKind.DEADLINES])
    assert change is not None
    assert change.ack_ids == ["c"]
    assert outbox.next_request(5.0, [RequestKind.DEADLINES]) is None
    assert outbox.next_request(5.0, [RequestKind.ACKS]) is request


def test_ack_ids_named_with_a_transient_failure_are_retried_and_permanent_failures_not() -> None:
    """With exactly-once delivery the server names the failed ids."""
    outbox = Outbox()
    futures = {ack_id: tracked(outbox, Purpose.ACK, ack_id) for ack_id in ("good", "busy", "bad")}
    (request,) = everything(outbox)
    named = {"busy": "TRANSIENT_FAILURE_X", "bad": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    error = errors.FailedPrecondition("no", reason="R", metadata=named)
    answer = outbox.record_answer(request, error, 0.0)
    assert not futures["good"].done()
    (unnamed,) = everything(outbox)
    assert unnamed.ack_ids == ["good"]
    outbox.record_answer(unnamed, None, 0.0)
    assert futures["good"].result(timeout=0) is AcknowledgeStatus.SUCCESS
    assert error_of(futures["bad"]).error_code is AcknowledgeStatus.INVALID_ACK_ID
    assert list(answer.failed) == ["bad"]
    assert not futures["busy"].done()
    (again,) = everything(outbox, 1.0)
    assert again.ack_ids == ["busy"]
    outbox.record_answer(again, None, 1.0)
    assert futures["busy"].result(timeout=0) is AcknowledgeStatus.SUCCESS


def test_a_refused_ack_request_is_halved_until_the_bad_ack_id_is_alone() -> None:
    """A refused request is halved at once, without a pause, until the bad id is alone."""
    outbox = Outbox()
    ack_ids = [str(number) for number in range(1000)]
    futures = {ack_id: tracked(outbox, Purpose.ACK, ack_id) for ack_id in ack_ids}
    requests = 0
    while (request := outbox.next_request(0.0)) is not None:
        requests += 1
        refused = "777" in request.ack_ids
        error = errors.InvalidArgument("an invalid ack id") if refused else None
        outbox.record_answer(request, error, 0.0)
    assert error_of(futures.pop("777")).error_code is AcknowledgeStatus.OTHER
    assert {future.result(timeout=0) for future in futures.values()} == {AcknowledgeStatus.SUCCESS}
    assert requests < 25


def test_the_outbox_counts_an_ack_as_unanswered_until_the_server_accepts_or_refuses_it() -> None:
    """An ack counts until the server takes or refuses it, or until it is abandoned."""
    outbox = Outbox()
    outbox.add_ack_ids(Purpose.ACK, ["good", "busy", "bad", "bad"])
    outbox.add_ack_ids(Purpose.USER, ["x"], 30)
    assert outbox.unanswered == 4
    acks, extension = everything(outbox)
    named = {"busy": "TRANSIENT_FAILURE_X", "bad": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    outbox.record_answer(acks, errors.FailedPrecondition("no", reason="R", metadata=named), 0.0)
    outbox.record_answer(extension, None, 0.0)
    assert outbox.unanswered == 2
    (unnamed,) = everything(outbox)
    outbox.record_answer(unnamed, None, 0.0)
    assert outbox.unanswered == 1
    (again,) = everything(outbox, 1.0)
    outbox.record_failure(again, "closed")
    assert outbox.unanswered == 0
    outbox.add_ack_ids(Purpose.ACK, ["late"])
    outbox.abandon([], "it is over")
    assert outbox.unanswered == 1


# ---- futures -----------------------------------------------------------------------------------


def test_acknowledging_a_message_twice_resolves_both_ack_futures() -> None:
    """Duplicates are harmless, in one request or in two."""
    outbox = Outbox()
    first, second = tracked(outbox, Purpose.ACK, "a"), tracked(outbox, Purpose.ACK, "a")
    (request,) = everything(outbox)
    outbox.record_answer(request, None, 0.0)
    third = tracked(outbox, Purpose.ACK, "a")
    (request,) = everything(outbox)
    outbox.record_answer(request, None, 0.0)
    assert {f.result(timeout=0) for f in (first, second, third)} == {AcknowledgeStatus.SUCCESS}


def test_an_ack_future_is_not_resolved_by_the_answer_to_a_nack() -> None:
    """A successful nack does not resolve the future of an acknowledgement."""
    outbox = Outbox()
    acked, nacked = tracked(outbox, Purpose.ACK, "a"), tracked(outbox, Purpose.USER, "a")
    acks, nacks = everything(outbox)
    outbox.record_answer(nacks, None, 0.0)
    assert nacked.done()
    assert not acked.done()
    outbox.record_answer(acks, errors.PermissionDenied("no"), 0.0)
    assert error_of(acked).error_code is AcknowledgeStatus.PERMISSION_DENIED


def test_an_ack_on_a_closed_channel_fails_at_once_without_a_retry() -> None:
    """A closed channel stays closed, so there is no retry."""
    outbox = Outbox()
    future = tracked(outbox, Purpose.ACK, "a")
    (request,) = everything(outbox)
    answer = outbox.record_failure(request, "the channel is closed")
    assert list(answer.failed) == ["a"]
    assert outbox.is_empty
    assert error_of(future).info == "not sent: the channel is closed"
    assert not error_of(future).may_have_succeeded


def test_the_error_of_an_ack_retry_on_a_closed_channel_says_the_ack_may_have_succeeded() -> None:
    outbox = Outbox()
    future = tracked(outbox, Purpose.ACK, "a")
    (request,) = everything(outbox)
    outbox.record_answer(request, UNAVAILABLE, 0.0)
    (again,) = everything(outbox, 1.0)
    outbox.record_failure(again, "the channel is closed")
    assert error_of(future).may_have_succeeded
    assert "not sent: the channel is closed; an earlier attempt" in str(error_of(future))


def test_acks_abandoned_at_shutdown_fail_with_an_error_that_says_whether_they_were_sent() -> None:
    """Requests that wait for a retry or an answer may have succeeded. The others were not sent."""
    outbox = Outbox()
    retried = tracked(outbox, Purpose.ACK, "retried")
    (request,) = everything(outbox)
    outbox.record_answer(request, UNAVAILABLE, 0.0)
    in_flight = tracked(outbox, Purpose.ACK, "in flight")
    sent = everything(outbox)
    early = tracked(outbox, Purpose.ACK, "early")
    (refused,) = everything(outbox)
    outbox.record_answer(refused, too_early("early"), 0.0)
    waiting = tracked(outbox, Purpose.USER, "waiting")
    outbox.add_ack_ids(Purpose.LEASE, ["of the SDK"], 60)
    failed = outbox.abandon(sent, "the end came")
    assert failed.keys() == {"retried", "in flight", "early", "waiting"}
    for future in (retried, in_flight):
        assert error_of(future).may_have_succeeded
        assert "sent, but the end came" in str(error_of(future))
    assert "refused for now" in str(error_of(early))
    assert error_of(waiting).info == "not sent: the end came"
    assert not any(error_of(future).may_have_succeeded for future in (early, waiting))
    assert outbox.is_empty
    assert outbox.next_request(1000.0) is None


@pytest.mark.parametrize("purpose", [Purpose.ACK, Purpose.NACK, Purpose.USER])
def test_the_error_of_an_ack_refused_after_an_unclear_answer_says_it_may_have_succeeded(
    purpose: Purpose,
) -> None:
    """The first request may have taken effect. Then the server refuses the second one."""
    outbox = Outbox()
    future = tracked(outbox, purpose, "a")
    tracked(outbox, purpose, "b")
    (request,) = everything(outbox)
    refused = {"b": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    outbox.record_answer(request, errors.InvalidArgument("b", reason="R", metadata=refused), 0.0)
    (again,) = everything(outbox)
    assert again.ack_ids == ["a"]
    refused = {"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    outbox.record_answer(again, errors.InvalidArgument("a", reason="R", metadata=refused), 0.0)
    assert error_of(future).error_code is AcknowledgeStatus.INVALID_ACK_ID
    assert error_of(future).may_have_succeeded


def test_a_system_exit_in_an_ack_done_callback_is_logged_and_other_ack_futures_resolve(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The exception is logged, and the other futures of the request are resolved."""
    outbox = Outbox()
    first, second = tracked(outbox, Purpose.ACK, "a"), tracked(outbox, Purpose.ACK, "b")

    def leave(future: object) -> None:
        raise SystemExit("leaving")

    first.add_done_callback(leave)
    (request,) = everything(outbox)
    with caplog.at_level(logging.ERROR):
        outbox.record_answer(request, None, 0.0)
    assert second.result(timeout=0) is AcknowledgeStatus.SUCCESS
    assert len(caplog.records) == 1


# The verdicts that an error may have for an id, and whether the request may have taken effect.
UNNAMED = "TRANSIENT_FAILURE_INVALID_ACK_ID"
VERDICTS = {
    "PERMANENT_FAILURE_INVALID_ACK_ID": False,
    "PERMANENT_FAILURE_OTHER": False,
    "TRANSIENT_FAILURE_UNORDERED_ACK_ID": False,
    UNNAMED: True,
    "": False,
}


class HostileServer:
    """Applies requests for any of their ids, and answers in any form that a server may use.

    It tells no lies: OK means that all ids took effect, and a refusal that this attempt had no
    effect. All other answers leave it open.
    """

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self.applied: set[tuple[Purpose, str]] = set()

    def answer(self, request: AckRequest) -> errors.RpcError | None:
        kind = self._data.draw(st.sampled_from([None, *errors.BY_CODE.values()]))
        if kind is None:
            self.applied.update((request.purpose, ack_id) for ack_id in request.ack_ids)
            return None
        verdicts = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(list(VERDICTS)))
        named = self._data.draw(verdicts)
        if named.keys().isdisjoint(request.ack_ids):
            is_open = kind.grpc_status_code in TRANSIENT_CODES
            self._apply(request, request.ack_ids if is_open else ())
        else:
            self._apply(request, [i for i in request.ack_ids if VERDICTS[named.get(i, UNNAMED)]])
        return kind("no", reason="R", metadata=named)

    def _apply(self, request: AckRequest, ack_ids: Sequence[str]) -> None:
        """Let the request take effect for some of these ids."""
        for ack_id in ack_ids:
            if self._data.draw(st.booleans()):
                self.applied.add((request.purpose, ack_id))


@given(st.data())
def test_every_ack_future_resolves_with_the_servers_result_for_its_ack_id(
    data: st.DataObject,
) -> None:
    """Dispositions and forms of answers come in any order, and the end comes at any time.

    Success means that it took effect. An error that excludes a success means that it did not.
    """
    outbox, server, now = Outbox(), HostileServer(data), 0.0
    sent: set[tuple[Purpose, str]] = set()
    in_flight: list[AckRequest] = []
    futures: dict[tuple[Purpose, str], AckFuture] = {}
    for _ in range(data.draw(st.integers(0, 40))):
        action = data.draw(st.sampled_from(["add", "send", "answer", "answer", "wait"]))
        if action == "add":
            purpose = data.draw(st.sampled_from([Purpose.ACK, Purpose.NACK]))
            for ack_id in sorted(data.draw(st.sets(st.sampled_from("abcd"), min_size=1))):
                if (purpose, ack_id) not in futures:
                    futures[purpose, ack_id] = tracked(outbox, purpose, ack_id)
        elif action == "send":
            in_flight += everything(outbox, now)
            sent.update((request.purpose, i) for request in in_flight for i in request.ack_ids)
        elif action == "wait":
            now += data.draw(st.sampled_from([0.1, 10.0, 700.0]))
        elif in_flight:
            request = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1)))
            outbox.record_answer(request, server.answer(request), now)
    for request in in_flight:
        server.answer(request)
    outbox.abandon(in_flight, "the end came")
    for kind, future in futures.items():
        failure = future.exception(timeout=0)
        if failure is None:
            assert kind in server.applied
            continue
        assert isinstance(failure, AcknowledgeError)
        assert failure.may_have_succeeded == ("may have succeeded" in str(failure))
        assert failure.may_have_succeeded or kind not in server.applied
        assert ("not sent" in str(failure)) == (kind not in sent)
