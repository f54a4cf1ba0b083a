"""The checker finds each broken promise in a recorded history, and none in a right one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.event_log import Event
from tests.jepsen.checker import Verdict, judge

Step = tuple[str, str, dict[str, Any]]
ONCE, ORDERED = "once", "ordered"


def step(what: str, subject: str, **detail: Any) -> Step:
    return what, subject, detail


def check(*steps: Step, durability: str = "fsync", apart: float = 1.0) -> Verdict:
    """Judge steps some seconds apart, on a subscription with exactly-once delivery and order."""
    settings = {"ordered": True, "exactly_once": True, "sought": False}
    begin = Event(0.0, "run", "subscription", ONCE, settings)
    events = [
        Event((at + 1) * apart, "run" if each[0] in RUN else "client", *each)
        for at, each in enumerate(steps)
    ]
    return judge([begin, *events], durability)


RUN = ("broker killed", "time seek")


def kinds(*steps: Step, durability: str = "fsync", apart: float = 1.0) -> list[str]:
    verdict = check(*steps, durability=durability, apart=apart)
    return [violation.kind for violation in verdict.violations]


def official_kinds(*steps: Step) -> list[str]:
    """Judge steps of one process of the official client."""
    begin = Event(
        0.0, "run", "subscription", ONCE, {"ordered": True, "exactly_once": True, "sought": False}
    )
    events = [Event(at + 1.0, "official-1", *each) for at, each in enumerate(steps)]
    return [violation.kind for violation in judge([begin, *events], "fsync").violations]


def published(data: str, message_id: str) -> list[Step]:
    return [step("publish", data), step("publish ok", data, id=message_id)]


def delivered(data: str, message_id: str, delivery: str, received: float = 0.1) -> list[Step]:
    values = {"subscription": ONCE, "id": message_id, "delivery": delivery}
    return [step("begin", data, received=received, **values)]


def acked(data: str, message_id: str, delivery: str) -> list[Step]:
    values = {"subscription": ONCE, "id": message_id, "delivery": delivery}
    return [step("ack", data, **values), step("ack ok", data, **values)]


def handled(data: str, message_id: str, delivery: str = "d") -> list[Step]:
    return [*delivered(data, message_id, delivery), *acked(data, message_id, delivery)]


CLOSED = step("closed", "")
KILLED = step("broker killed", "")


def test_the_jepsen_checker_finds_no_violation_in_a_correct_history() -> None:
    verdict = check(
        *published("key:0", "1"),
        *published("key:1", "2"),
        *delivered("key:0", "1", "d1"),
        KILLED,
        *handled("key:0", "1", "d2"),
        *handled("key:1", "2", "d3"),
        CLOSED,
    )
    assert verdict.violations == []
    assert verdict.figures["confirmed"] == 2
    assert verdict.figures["callbacks"] == 3


def test_the_jepsen_checker_finds_a_lost_confirmed_message() -> None:
    assert kinds(*published(":0", "1")) == ["confirmed message lost"]
    # An unconfirmed one may be gone.
    assert kinds(step("publish", ":0"), step("publish failed", ":0", error="Unavailable")) == []
    # The copy of an attempt without an answer is another message.
    assert kinds(*published(":0", "1"), *handled(":0", "7")) == ["confirmed message lost"]


@pytest.mark.parametrize(
    ("durability", "found"),
    [("memory", []), ("disk", []), ("fsync", ["confirmed message lost"])],
)
def test_the_jepsen_checker_accepts_the_documented_loss_of_a_durability_class(
    durability: str, found: list[str]
) -> None:
    verdict = check(*published(":0", "1"), KILLED, durability=durability)
    assert [violation.kind for violation in verdict.violations] == found
    assert verdict.lost == (0 if found else 1)
    # Without a kill no class loses anything.
    assert kinds(KILLED, *published(":0", "1"), durability=durability) == ["confirmed message lost"]


def test_the_jepsen_checker_finds_a_loss_of_durability_disk_above_the_documented_bound() -> None:
    steps = [*published(":0", "1"), *published(":1", "2"), *published(":2", "3"), KILLED]
    assert kinds(*steps, durability="disk", apart=0.1) == []
    assert kinds(*steps, durability="disk", apart=0.3) == ["loss above the bound"]


def test_the_jepsen_checker_finds_a_redelivery_after_a_confirmed_ack() -> None:
    before = [*published(":0", "1"), *handled(":0", "1", "d1")]
    assert kinds(*before, *delivered(":0", "1", "d2", received=6.0)) == ["acked message came again"]
    # It was received before the confirmation, and waited for a worker.
    assert kinds(*before, *delivered(":0", "1", "d2", received=4.5)) == []
    # Clients that do not tell the time of the receipt: a second confirmation proves it.
    assert kinds(*before, *delivered(":0", "1", "d2", received=0.0)) == []
    late = [*delivered(":0", "1", "d2", received=0.0), *acked(":0", "1", "d2")]
    assert kinds(*before, *late) == ["acked message came again"]


def test_the_jepsen_checker_finds_an_ack_lost_by_a_crash() -> None:
    before = [*published(":0", "1"), *handled(":0", "1", "d1"), KILLED]
    assert kinds(*before, *delivered(":0", "1", "d2", received=7.0)) == ["lost ack"]


def test_the_jepsen_checker_allows_overlapping_callbacks_of_a_key_in_official_clients() -> None:
    """The client begins a held message for each copy that ends, on any of its threads."""
    sent = [*published("key:0", "1"), *published("key:1", "2")]
    first, second = delivered("key:0", "1", "d1"), delivered("key:1", "2", "d2")
    ends = [*acked("key:1", "2", "d2"), *acked("key:0", "1", "d1")]
    assert official_kinds(*sent, *first, *second, *ends) == []
    assert official_kinds(*sent, *second, *first, *ends) == []
    assert kinds(*sent, *first, *second, *ends) == ["reordered key"]


def test_the_jepsen_checker_finds_messages_of_an_ordering_key_handled_out_of_order() -> None:
    both = [*published("key:0", "1"), *published("key:1", "2")]
    swapped = [*handled("key:1", "2", "d1"), *handled("key:0", "1", "d2")]
    assert kinds(*both, *swapped) == ["reordered key"]
    early = [*delivered("key:0", "1", "d1"), *delivered("key:1", "2", "d2")]
    assert kinds(*both, *early, *acked("key:0", "1", "d1")) == ["reordered key"]
    # A message without an answer has no place in the order.
    open_end = [step("publish", "key:0"), *published("key:1", "2")]
    assert kinds(*open_end, *handled("key:1", "2", "d1"), *handled("key:0", "1", "d2")) == []


def test_the_jepsen_checker_accepts_a_late_delivery_of_a_message_that_a_broker_kill_lost() -> None:
    steps = [
        *published("key:0", "1"),
        KILLED,
        *published("key:1", "2"),
        *handled("key:1", "2", "d2"),
        *delivered("key:0", "1", "d1"),
    ]
    assert kinds(*steps, durability="memory") == []
    assert kinds(*steps) == ["reordered key"]


def test_the_jepsen_checker_accepts_a_skipped_message_only_if_a_broker_kill_may_lose_it() -> None:
    steps = [
        *published("key:0", "1"),
        *delivered("key:0", "1", "d1"),
        KILLED,
        *published("key:1", "2"),
        *handled("key:1", "2", "d2"),
    ]
    assert kinds(*steps, durability="disk") == []
    assert kinds(*steps) == ["reordered key"]


def test_the_jepsen_checker_finds_an_unresolved_future_of_a_closed_client() -> None:
    assert kinds(step("publish", ":0"), CLOSED) == ["unresolved future"]
    assert kinds(step("publish", ":0")) == []
    begun = [*published(":0", "1"), *handled(":0", "1", "d1")[:2]]
    assert kinds(*begun, CLOSED) == ["unresolved future"]


def test_the_jepsen_checker_finds_deliveries_of_unpublished_messages_and_duplicate_ids() -> None:
    assert kinds(*handled(":9", "1")) == ["invented message"]
    both = [*published(":0", "1"), *published(":1", "2"), *handled(":1", "2", "d1")]
    found = kinds(*both, *handled(":0", "1", "d2"), *delivered(":1", "1", "d3"))
    assert "id used twice" in found


def test_the_jepsen_checker_accepts_that_a_seek_to_a_time_skips_earlier_messages() -> None:
    seek = step("time seek", ONCE)
    assert kinds(*published(":0", "1"), seek) == []
    # A seek without an answer may take effect some seconds later.
    assert kinds(seek, *published(":0", "1"), apart=11.0) == ["confirmed message lost"]


def test_the_report_of_a_jepsen_violation_has_the_message_and_its_history() -> None:
    (violation,) = check(*published(":0", "1"), KILLED).violations
    lines = violation.account(0.0).splitlines()
    assert lines[0].startswith("confirmed message lost: :0 was confirmed with the id 1")
    assert [line.split()[3:5] for line in lines[1:]] == [["publish", ":0"], ["publish", "ok"]]
