"""The checker finds each kind of lie in a recorded history, and none in a truthful one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.event_log import Event
from tests.hostile.checker import judge


def history(*steps: tuple[str, str, dict[str, Any]]) -> list[Event]:
    """Return events one second apart."""
    return [Event(float(at), "client", *step) for at, step in enumerate(steps)]


def asked(subject: str, **detail: Any) -> tuple[str, str, dict[str, Any]]:
    return "asked", subject, {"tracked": True, **detail}


def step(what: str, subject: str, **detail: Any) -> tuple[str, str, dict[str, Any]]:
    return what, subject, detail


def kinds(*steps: tuple[str, str, dict[str, Any]]) -> list[str]:
    return [violation.kind for violation in judge(history(*steps)).violations]


def test_the_checker_of_hostile_broker_runs_finds_no_violation_in_truthful_results() -> None:
    verdict = judge(
        history(
            step("begin", "key:0", received=0.0),
            step("handled", "key:0"),
            asked("ack 1", message="key:0", exactly_once=True),
            step("arrived", "ack 1"),
            step("took", "ack 1"),
            step("success", "ack 1"),
            asked("publish :a"),
            step("took", "publish :a", id="7"),
            step("success", "publish :a", id="7"),
            asked("ack 2", message="key:1"),
            step("refused", "ack 2"),
            step("failure", "ack 2", error="INVALID_ACK_ID", open=False, text="PERMANENT_FAILURE"),
            asked("ack 3", tracked=False, message="key:2"),
            step("arrived", "ack 3"),
            step("closed", ""),
        )
    )
    assert verdict.violations == []
    assert verdict.counts == {"ack": {"truthful": 2}, "publish": {"truthful": 1}}


def test_the_checker_of_hostile_broker_runs_finds_a_lost_acknowledgement() -> None:
    lost = asked("ack 1", tracked=False, message="key:0")
    assert kinds(lost, step("closed", "")) == ["lost ack"]
    assert kinds(lost, step("reported", "ack 1"), step("closed", "")) == []
    # A client that was killed had no time to send it.
    assert kinds(lost) == []


@pytest.mark.parametrize("subject", ["ack 1", "nack 1", "extend 1", "publish :a"])
def test_the_checker_of_hostile_broker_runs_finds_a_success_of_a_request_without_effect(
    subject: str,
) -> None:
    verdict = judge(history(asked(subject, message="key:0"), step("success", subject, id="7")))
    assert [violation.kind for violation in verdict.violations] == ["false success"]
    assert verdict.counts == {subject.partition(" ")[0]: {"false": 1}}


def test_the_checker_of_hostile_broker_runs_finds_a_wrong_message_id_of_a_publish() -> None:
    took = step("took", "publish :a", id="7")
    assert kinds(asked("publish :a"), took, step("success", "publish :a", id="8")) == [
        "false success"
    ]


def test_the_checker_of_hostile_runs_finds_a_false_failure_of_a_request_that_took_effect() -> None:
    begin = asked("ack 1", message="key:0"), step("arrived", "ack 1"), step("took", "ack 1")
    plain = step("failure", "ack 1", error="INVALID_ACK_ID", open=False, text="")
    assert kinds(*begin, plain) == ["false failure"]
    assert kinds(*begin, step("failure", "ack 1", error="OTHER", open=True, text="")) == []
    # The refusal of a repeated request must say that an earlier attempt may have succeeded.
    assert kinds(*begin, step("refused", "ack 1"), plain) == ["false failure"]
    extended = asked("extend 1"), step("took", "extend 1"), step("refused", "extend 1")
    assert kinds(*extended, step("failure", "extend 1", error="OTHER", open=False, text="")) == []


def test_the_checker_of_hostile_broker_runs_finds_messages_of_a_key_handled_out_of_order() -> None:
    def begin(number: int) -> tuple[str, str, dict[str, Any]]:
        return step("begin", f"key:{number}", received=0.0)

    def handled(number: int) -> tuple[str, str, dict[str, Any]]:
        return step("handled", f"key:{number}")

    assert kinds(begin(0), handled(0), begin(1), begin(2)) == ["reordered key"]
    # The redelivery of a handled message is no change of the order.
    assert kinds(begin(0), handled(0), begin(1), handled(1), begin(0), begin(2)) == []
    # Messages without a key have no order.
    assert kinds(step("begin", ":5", received=0.0)) == []


def test_the_checker_of_hostile_broker_runs_finds_a_redelivery_after_a_confirmed_ack() -> None:
    acked = (
        asked("ack 1", message=":0", exactly_once=True),
        step("took", "ack 1"),
        step("success", "ack 1"),
    )
    assert kinds(*acked, step("begin", ":0", received=2.5)) == ["acked message came again"]
    # It was received before the confirmation, and waited for a worker.
    assert kinds(*acked, step("begin", ":0", received=1.5)) == []


def test_the_checker_of_hostile_broker_runs_finds_a_future_that_was_never_resolved() -> None:
    verdict = judge(history(asked("publish :a"), step("took", "publish :a", id="7")))
    assert [violation.kind for violation in verdict.violations] == ["unresolved future"]
    assert verdict.counts == {"publish": {"unresolved": 1}}


def test_the_report_of_a_violation_in_a_hostile_run_names_the_message_and_its_events() -> None:
    (violation,) = judge(history(asked("publish :a"))).violations
    account = violation.account(0.0)
    assert account.splitlines()[0] == "unresolved future: publish :a has no result"
    assert "asked" in account
    assert "tracked=True" in account


def test_the_checker_of_hostile_broker_runs_finds_confirmed_messages_stored_out_of_order() -> None:
    def publish(number: int, *rest: str) -> list[tuple[str, str, dict[str, Any]]]:
        return [step(what, f"publish key:{number}", id=str(number)) for what in rest]

    requests = [asked("publish key:0"), asked("publish key:1")]
    swapped = [*publish(1, "took", "success"), *publish(0, "took", "success")]
    assert kinds(*requests, *swapped) == ["reordered key"]
    repeated = [*publish(0, "took"), *publish(1, "took", "success"), *publish(0, "took", "success")]
    assert kinds(*requests, *repeated) == []
