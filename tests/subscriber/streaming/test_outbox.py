"""The rules of requests: size, order, what is tried again, and whom the result reaches."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import errors
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from subscriber.futures import AckFuture
from subscriber.streaming.keeper import KEEP_AFTER, KEEP_FOR
from subscriber.streaming.outbox import MAX_IDS, Outbox
from subscriber.streaming.requests import ACK, ACK_RETRY_FOR, NACK_RETRY_FOR, Purpose, Request
from subscriber.streaming.verdicts import Answer

# https://cloud.google.com/pubsub/quotas
SERVERS_LIMIT = 512 * 1024
LONGEST_NAME = "projects/" + "p" * 30 + "/subscriptions/" + "s" * 255
UNAVAILABLE = errors.Unavailable("down")


def everything(outbox: Outbox, now: float = 0.0) -> list[Request]:
    """Every request that is to be sent now."""
    requests = []
    while (request := outbox.next_request(now)) is not None:
        requests.append(request)
    return requests


def tracked(outbox: Outbox, seconds: int, ack_id: str) -> AckFuture:
    """Add one outcome whose result somebody waits for."""
    future = AckFuture()
    outbox.add(seconds, [ack_id])
    outbox.track(seconds, ack_id, future)
    return future


def error_of(future: AckFuture) -> AcknowledgeError:
    error = future.exception(timeout=0)
    assert isinstance(error, AcknowledgeError)
    return error


# ---- what is sent ------------------------------------------------------------------------------


def test_outcomes_of_one_kind_go_into_one_request() -> None:
    """Whoever added them, in the order in which they came."""
    outbox = Outbox()
    outbox.add(ACK, ["a", "b"])
    outbox.add(0, ["x"])
    outbox.add(ACK, ["c"])
    acks, nacks = everything(outbox)
    assert (acks.is_ack, acks.ack_ids) == (True, ["a", "b", "c"])
    assert (nacks.is_ack, nacks.seconds, nacks.ack_ids) == (False, 0, ["x"])
    assert outbox.is_empty


def test_deadlines_of_different_length_are_different_requests() -> None:
    """A request has one deadline for all its ids."""
    outbox = Outbox()
    outbox.add(10, ["a"])
    outbox.add(20, ["b"])
    assert [(r.seconds, r.ack_ids) for r in everything(outbox)] == [(10, ["a"]), (20, ["b"])]


def test_a_receipt_does_not_travel_with_other_deadline_changes() -> None:
    """Its answer is read differently, also when it is tried again or split."""
    outbox = Outbox()
    outbox.add(60, ["extended"])
    outbox.add(60, ["a", "b"], Purpose.RECEIPT)
    outbox.add(60, ["c"], Purpose.RECEIPT)
    extension, receipt = everything(outbox)
    assert (extension.is_receipt, extension.ack_ids) == (False, ["extended"])
    assert (receipt.is_receipt, receipt.ack_ids) == (True, ["a", "b", "c"])
    outbox.answered(receipt, UNAVAILABLE, 0.0)
    (again,) = everything(outbox, 1.0)
    assert again.is_receipt
    outbox.answered(again, errors.InvalidArgument("one is no id"), 1.0)
    halves = everything(outbox, 1.0)
    assert [(half.is_receipt, half.ack_ids) for half in halves] == [
        (True, ["a"]),
        (True, ["b", "c"]),
    ]


def test_a_request_knows_when_it_was_handed_out() -> None:
    """The last time, so that how long its call takes can be told."""
    outbox = Outbox()
    outbox.add(ACK, ["a"])
    (request,) = everything(outbox, 5.0)
    assert request.sent_at == 5.0
    outbox.answered(request, UNAVAILABLE, 6.0)
    (again,) = everything(outbox, 8.0)
    assert again.sent_at == 8.0


def test_kinds_take_turns() -> None:
    """A flood of acknowledgements does not keep extensions from going out in time."""
    outbox = Outbox()
    outbox.add(ACK, [str(number) for number in range(3 * MAX_IDS)])
    outbox.add(10, ["urgent"])
    kinds = [request.is_ack for request in everything(outbox)]
    assert kinds == [True, False, True, True]


@given(
    st.lists(st.integers(1, 200_000), max_size=30),
    st.integers(1, 2 * MAX_IDS),
)
def test_no_request_is_larger_than_the_server_takes(lengths: list[int], short_ids: int) -> None:
    """Whatever the length of the ids; and all of them go out, in order."""
    ack_ids = ["x" * length for length in lengths] + ["short"] * short_ids
    outbox = Outbox()
    outbox.add(ACK, ack_ids)
    requests = everything(outbox)
    assert [ack_id for request in requests for ack_id in request.ack_ids] == ack_ids
    for request in requests:
        assert 1 <= len(request.ack_ids) <= MAX_IDS
        wire = pubsub.AcknowledgeRequest(subscription=LONGEST_NAME, ack_ids=request.ack_ids)
        assert wire.ByteSize() <= SERVERS_LIMIT


def test_requests_are_as_large_as_they_may_be() -> None:
    """2,500 short ids go out at once, and so do as many long ones as fit."""
    outbox = Outbox()
    outbox.add(ACK, ["x" * 180] * (MAX_IDS + 1))
    assert [len(request.ack_ids) for request in everything(outbox)] == [2_445, 56]


def test_an_id_beyond_the_budget_goes_alone() -> None:
    """The server will tell whether it is too long; waiting would not make it shorter."""
    outbox = Outbox()
    outbox.add(ACK, ["a", "x" * 1_000_000, "b"])
    assert [len(request.ack_ids) for request in everything(outbox)] == [1, 1, 1]


# ---- what is tried again -----------------------------------------------------------------------


def test_a_passing_failure_is_tried_again_after_a_growing_pause() -> None:
    """The same ids, as their kind; nothing is due before."""
    outbox = Outbox()
    outbox.add(ACK, ["a", "b"])
    (request,) = everything(outbox)
    now = 0.0
    for attempt in range(8):
        answer = outbox.answered(request, UNAVAILABLE, now)
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
    outbox.answered(request, None, now)
    assert outbox.is_empty


@pytest.mark.parametrize(
    ("seconds", "patience"), [(ACK, ACK_RETRY_FOR), (0, NACK_RETRY_FOR), (10, 10.0), (500, 500.0)]
)
def test_it_is_not_tried_for_ever(seconds: int, patience: float) -> None:
    """A deadline change is worth nothing after the lease it was to extend."""
    outbox = Outbox()
    future = tracked(outbox, seconds, "a")
    now = 0.0
    while (request := outbox.next_request(now)) is not None:
        outbox.answered(request, UNAVAILABLE, now)
        now = outbox.next_due() or now
    assert outbox.is_empty
    # The next pause, at most 30 s and twice as long as all before it together, would end too late.
    assert max(patience - 31, patience / 3 - 0.1) <= now <= patience
    assert error_of(future).error_code is AcknowledgeStatus.OTHER
    assert "down" in str(error_of(future))


def test_a_nack_is_tried_until_the_lease_may_have_ended_whatever_its_delay() -> None:
    outbox = Outbox()
    outbox.add(1, ["a"], Purpose.NACK)
    now = 0.0
    while (request := outbox.next_request(now)) is not None:
        outbox.answered(request, UNAVAILABLE, now)
        now = outbox.next_due() or now
    assert now >= NACK_RETRY_FOR / 3


def test_leases_of_what_is_to_be_acknowledged_again_are_kept() -> None:
    """Nobody else extends them any more. Once in a while; and what becomes of that is no news."""
    outbox = Outbox(keep_for=KEEP_FOR)
    future = tracked(outbox, ACK, "a")
    extended_at, now = [], 0.0
    while not future.done():
        while (request := outbox.next_request(now)) is not None:
            if request.is_ack:
                outbox.answered(request, UNAVAILABLE, now)
            else:
                assert (request.seconds, request.ack_ids) == (KEEP_FOR, ["a"])
                extended_at.append(now)
                answer = outbox.answered(request, errors.NotFound("gone"), now)
                assert answer == Answer()
        now = outbox.next_due() or now
    assert KEEP_AFTER <= extended_at[0] <= 3 * KEEP_AFTER
    between = [later - earlier for earlier, later in pairwise(extended_at)]
    assert min(between) >= KEEP_FOR / 3
    assert max(between) < KEEP_FOR
    # The last attempt may be a pause, of 30 s at most, before the end.
    assert extended_at[-1] > ACK_RETRY_FOR - 30 - KEEP_FOR
    assert outbox.is_empty


def test_leases_are_kept_while_their_acknowledgement_hangs() -> None:
    """It may take longer than is left of a lease."""
    outbox = Outbox(keep_for=KEEP_FOR)
    outbox.add(ACK, ["a"])
    hanging = outbox.next_request(0.0)
    assert hanging is not None
    assert outbox.next_due() == KEEP_AFTER
    assert outbox.next_request(KEEP_AFTER - 0.1) is None
    for time in (KEEP_AFTER, KEEP_AFTER + KEEP_FOR / 3):
        kept = outbox.next_request(time)
        assert kept is not None
        assert (kept.seconds, kept.ack_ids, kept.purpose) == (KEEP_FOR, ["a"], Purpose.KEEP)
        assert outbox.next_request(time) is None
    outbox.answered(hanging, None, 30.0)
    assert outbox.next_due() is None
    assert outbox.next_request(100.0) is None


def test_leases_are_kept_while_their_acknowledgement_cannot_be_sent() -> None:
    """All of them in turns, and soon those of what comes to wait behind the others."""
    outbox = Outbox(keep_for=9)
    kept: dict[float, list[str]] = {}

    def look(now: float) -> None:
        while (request := outbox.next_request(now, acks=False)) is not None:
            kept.setdefault(now, []).extend(request.ack_ids)
            outbox.answered(request, None, now)

    outbox.add(ACK, ["a"])
    look(0.0)
    assert outbox.next_due(acks=False) == KEEP_AFTER
    look(1.0)
    outbox.add(ACK, ["b"])
    for tenth in range(20, 60):
        look(tenth / 10)
    assert kept == {1.0: ["a"], 2.0: ["b"], 4.0: ["a", "b"]}
    whole = outbox.next_request(6.0)
    assert whole is not None
    assert (whole.seconds, whole.ack_ids) == (ACK, ["a", "b"])
    assert outbox.next_due(acks=False) == 6.0 + KEEP_AFTER


def test_a_nack_is_not_answered_by_an_extension_of_as_many_seconds() -> None:
    outbox = Outbox()
    outbox.add(10, ["a"], Purpose.LEASE)
    lease = outbox.next_request(0.0)
    assert lease is not None
    future = AckFuture()
    outbox.track(10, "a", future, Purpose.NACK)
    outbox.add(10, ["a"], Purpose.NACK)
    outbox.answered(lease, None, 0.0)
    assert not future.done()
    nack = outbox.next_request(0.0)
    assert nack is not None
    outbox.answered(nack, None, 0.0)
    assert future.result(0) is AcknowledgeStatus.SUCCESS


def too_early(*ack_ids: str) -> errors.RpcError:
    named = dict.fromkeys(ack_ids, "TRANSIENT_FAILURE_UNORDERED_ACK_ID")
    return errors.FailedPrecondition("Some failed.", reason="ACKS", metadata=named)


def test_what_is_refused_as_too_early_goes_through_together_with_what_came_before_it() -> None:
    """Each in a request of its own, they would take a pause for each."""
    outbox = Outbox(keep_for=KEEP_FOR)
    names = [f"{number:03}" for number in range(100)]
    futures = {name: tracked(outbox, ACK, name) for name in names[:1]}
    first = outbox.next_request(0.0)
    assert first is not None
    others = []
    for name in names[1:]:
        futures[name] = tracked(outbox, ACK, name)
        others.append(outbox.next_request(0.0))
    outbox.answered(first, UNAVAILABLE, 0.0)
    for request in reversed(others):
        assert request is not None
        outbox.answered(request, too_early(*request.ack_ids), 0.0)
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
            outbox.answered(request, too_early(*refused) if refused else None, now)
    assert {name for name, future in futures.items() if future.done()} == set(names) == through
    assert requests < 10
    assert now < 2.0
    assert outbox.unanswered == 0
    assert outbox.is_empty


def test_what_is_too_early_for_too_long_is_given_up_and_its_lease_kept_until_then() -> None:
    outbox = Outbox(keep_for=KEEP_FOR)
    old = tracked(outbox, ACK, "old")
    request = outbox.next_request(0.0)
    assert request is not None
    outbox.answered(request, too_early("old"), 0.0)
    young, now = None, 0.0
    kept_at: list[float] = []
    while not old.done():
        now = outbox.next_due() or now
        if young is None and now > ACK_RETRY_FOR / 2:
            young = tracked(outbox, ACK, "young")
        while (request := outbox.next_request(now)) is not None:
            if request.is_ack:
                outbox.answered(request, too_early(*request.ack_ids), now)
            elif "old" in request.ack_ids:
                kept_at.append(now)
    assert ACK_RETRY_FOR <= now < ACK_RETRY_FOR + 2
    assert error_of(old).error_code is AcknowledgeStatus.OTHER
    assert max(later - earlier for earlier, later in pairwise(kept_at)) < KEEP_FOR / 2
    assert young is not None
    assert not young.done()
    assert outbox.unanswered == 1
    assert outbox.abandon("over") == 1
    assert outbox.is_empty


def test_what_is_too_early_waits_longer_for_a_server_that_is_away() -> None:
    outbox = Outbox()
    outbox.add(ACK, ["a"])
    error: errors.RpcError = too_early("a")
    requests, now = 0, 0.0
    while now < 60.0:
        while (request := outbox.next_request(now)) is not None:
            requests += 1
            outbox.answered(request, error, now)
            error = UNAVAILABLE
        now = outbox.next_due() or now
    assert requests < 20
    assert not outbox.is_empty


def test_a_full_lane_does_not_hold_up_the_other() -> None:
    """Leases end also while the server takes no acknowledgements."""
    outbox = Outbox()
    outbox.add(ACK, ["a"])
    outbox.add(10, ["b"])
    (request,) = everything(outbox)[:1]
    outbox.answered(request, UNAVAILABLE, 0.0)
    outbox.add(10, ["c"])
    assert outbox.next_due(acks=False) is None
    assert outbox.next_due() is not None
    change = outbox.next_request(5.0, acks=False)
    assert change is not None
    assert change.ack_ids == ["c"]
    assert outbox.next_request(5.0, acks=False) is None
    assert outbox.next_request(5.0, changes=False) is request


def test_only_the_ids_that_failed_for_now_are_tried_again() -> None:
    """With exactly-once the server names them."""
    outbox = Outbox()
    futures = {ack_id: tracked(outbox, ACK, ack_id) for ack_id in ("good", "busy", "bad")}
    (request,) = everything(outbox)
    named = {"busy": "TRANSIENT_FAILURE_X", "bad": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    error = errors.FailedPrecondition("no", reason="R", metadata=named)
    answer = outbox.answered(request, error, 0.0)
    assert futures["good"].result(timeout=0) is AcknowledgeStatus.SUCCESS
    assert error_of(futures["bad"]).error_code is AcknowledgeStatus.INVALID_ACK_ID
    assert list(answer.failed) == ["bad"]
    assert not futures["busy"].done()
    (again,) = everything(outbox, 1.0)
    assert again.ack_ids == ["busy"]
    outbox.answered(again, None, 1.0)
    assert futures["busy"].result(timeout=0) is AcknowledgeStatus.SUCCESS


def test_a_bad_id_does_not_fail_those_beside_it() -> None:
    """A refused request is halved until the id stands alone, at once and without a pause."""
    outbox = Outbox()
    ack_ids = [str(number) for number in range(1000)]
    futures = {ack_id: tracked(outbox, ACK, ack_id) for ack_id in ack_ids}
    requests = 0
    while (request := outbox.next_request(0.0)) is not None:
        requests += 1
        refused = "777" in request.ack_ids
        error = errors.InvalidArgument("an invalid ack id") if refused else None
        outbox.answered(request, error, 0.0)
    assert error_of(futures.pop("777")).error_code is AcknowledgeStatus.OTHER
    assert {future.result(timeout=0) for future in futures.values()} == {AcknowledgeStatus.SUCCESS}
    assert requests < 25


def test_acknowledgements_without_an_answer_are_counted() -> None:
    """Until the server has taken or refused them, or nobody will ask it any more."""
    outbox = Outbox()
    outbox.add(ACK, ["good", "busy", "bad", "bad"])
    outbox.add(30, ["x"])
    assert outbox.unanswered == 4
    acks, extension = everything(outbox)
    named = {"busy": "TRANSIENT_FAILURE_X", "bad": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    outbox.answered(acks, errors.FailedPrecondition("no", reason="R", metadata=named), 0.0)
    outbox.answered(extension, None, 0.0)
    assert outbox.unanswered == 1
    (again,) = everything(outbox, 1.0)
    outbox.refused(again, "closed")
    assert outbox.unanswered == 0
    outbox.add(ACK, ["late"])
    outbox.abandon("the end")
    assert outbox.unanswered == 1


# ---- whom the result reaches -------------------------------------------------------------------


def test_a_message_acknowledged_twice_resolves_both_futures() -> None:
    """Duplicates are harmless, in one request or in two."""
    outbox = Outbox()
    first, second = tracked(outbox, ACK, "a"), tracked(outbox, ACK, "a")
    (request,) = everything(outbox)
    outbox.answered(request, None, 0.0)
    third = tracked(outbox, ACK, "a")
    (request,) = everything(outbox)
    outbox.answered(request, None, 0.0)
    assert {f.result(timeout=0) for f in (first, second, third)} == {AcknowledgeStatus.SUCCESS}


def test_a_future_learns_only_of_its_own_kind() -> None:
    """A nack that went well says nothing about an acknowledgement."""
    outbox = Outbox()
    acked, nacked = tracked(outbox, ACK, "a"), tracked(outbox, 0, "a")
    acks, nacks = everything(outbox)
    outbox.answered(nacks, None, 0.0)
    assert nacked.done()
    assert not acked.done()
    outbox.answered(acks, errors.PermissionDenied("no"), 0.0)
    assert error_of(acked).error_code is AcknowledgeStatus.PERMISSION_DENIED


def test_a_call_that_cannot_be_begun_fails_at_once() -> None:
    """A closed channel stays closed."""
    outbox = Outbox()
    future = tracked(outbox, ACK, "a")
    (request,) = everything(outbox)
    answer = outbox.refused(request, "the channel is closed")
    assert list(answer.failed) == ["a"]
    assert outbox.is_empty
    assert error_of(future).info == "the channel is closed"


def test_abandoning_resolves_every_future_and_counts_what_was_not_sent() -> None:
    """Waiting, under way or waiting for another try."""
    outbox = Outbox()
    retried = tracked(outbox, ACK, "retried")
    (request,) = everything(outbox)
    outbox.answered(request, UNAVAILABLE, 0.0)
    under_way = tracked(outbox, ACK, "under way")
    everything(outbox)
    waiting = tracked(outbox, 0, "waiting")
    assert outbox.abandon("shut down") == 2
    assert {error_of(f).info for f in (retried, under_way, waiting)} == {"shut down"}
    assert outbox.is_empty
    assert outbox.next_request(1000.0) is None


def test_a_done_callback_that_exits_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the others of its request are resolved."""
    outbox = Outbox()
    first, second = tracked(outbox, ACK, "a"), tracked(outbox, ACK, "b")

    def leave(future: object) -> None:
        raise SystemExit("leaving")

    first.add_done_callback(leave)
    (request,) = everything(outbox)
    with caplog.at_level(logging.ERROR):
        outbox.answered(request, None, 0.0)
    assert second.result(timeout=0) is AcknowledgeStatus.SUCCESS
    assert len(caplog.records) == 1


@given(st.data())
def test_every_future_resolves_and_success_is_only_what_the_server_said(
    data: st.DataObject,
) -> None:
    """Any outcomes, any answers, in any order, and an end at any moment."""
    outbox, now = Outbox(), 0.0
    applied: set[tuple[int, str]] = set()
    under_way: list[Request] = []
    futures: list[tuple[int, str, AckFuture]] = []
    answers = st.sampled_from([None, *errors.BY_CODE.values()])
    for _ in range(data.draw(st.integers(0, 30))):
        action = data.draw(st.sampled_from(["add", "send", "answer", "wait"]))
        if action == "add":
            seconds, ack_id = (
                data.draw(st.sampled_from([ACK, 0, 30])),
                data.draw(st.sampled_from("abc")),
            )
            futures.append((seconds, ack_id, tracked(outbox, seconds, ack_id)))
        elif action == "send":
            under_way += everything(outbox, now)
        elif action == "wait":
            now += data.draw(st.sampled_from([0.1, 10.0, 700.0]))
        elif under_way:
            request = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            kind = data.draw(answers)
            named = data.draw(
                st.dictionaries(st.sampled_from("abc"), st.sampled_from(["TRANSIENT_", "X"]))
            )
            error = None if kind is None else kind("no", reason="R", metadata=named)
            known = not named.keys().isdisjoint(request.ack_ids)
            for ack_id in request.ack_ids:
                if error is None or (known and ack_id not in named):
                    applied.add((request.seconds, ack_id))
            outbox.answered(request, error, now)
    outbox.abandon("the end")
    for seconds, ack_id, future in futures:
        assert future.done()
        assert future.exception() is not None or (seconds, ack_id) in applied
