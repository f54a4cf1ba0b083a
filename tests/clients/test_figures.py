"""The figures of a run, and the verdict: without a client, a broker, or a tool."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from .events import Event, Figures, Truth, figures, reading
from .report import GOOGLE, OURS, Run, spread
from .scenarios import SCENARIOS, floors


def measured(
    *lines: str,
    left: Iterable[int] = (),
    stale: Iterable[int] = (),
    answer: str = "ack",
    exactly_once: bool = True,
) -> Figures:
    """Return the figures for four messages of two keys: 0 and 1, 2 and 3."""
    return figures(
        [Event.parse(line) for line in lines],
        Truth(frozenset(left), stale=frozenset(stale)),
        messages=4,
        per_key=2,
        answer=answer,
        exactly_once=exactly_once,
        ordered=True,
        end=9.0,
    )


def of_each(*numbers: int) -> list[str]:
    """Return the lines of some messages that are delivered and acknowledged."""
    return [
        line.format(number=number)
        for number in numbers
        for line in (
            "1.0 delivered {number} id",
            "1.1 ack {number}",
            "1.2 ack-result {number} SUCCESS",
        )
    ]


def test_every_figure_of_a_client_comparison_run_without_faults_is_zero_except_the_time() -> None:
    found = measured(*of_each(0, 1, 2, 3))
    assert {name for name, value in found.items() if value} == {"seconds"}
    assert found["seconds"] == 1.2


def test_a_failed_ack_of_a_message_acked_on_the_broker_is_counted_as_false_failure() -> None:
    lines = [*of_each(0, 1, 2), "2.0 ack 3", "2.1 ack-result 3 OTHER"]
    assert measured(*lines)["false_failures"] == 1
    # Its failure is true when the message is still there, or when a later attempt succeeded.
    assert measured(*lines, left=[3])["false_failures"] == 0
    assert measured(*lines, *of_each(3))["false_failures"] == 0
    assert measured(*lines, *of_each(3))["failed"] == 1


def test_an_ack_success_for_a_message_the_broker_still_has_is_counted_as_false_success() -> None:
    assert measured(*of_each(0, 1, 2, 3), left=[2])["false_successes"] == 1
    assert measured(*of_each(0, 1, 2, 3), "2.0 delivered 1 id")["false_successes"] == 1


def test_a_nack_success_after_the_end_of_the_lease_is_counted_as_false_success() -> None:
    lines = ["1.0 nack 0", "1.1 nack-result 0 SUCCESS", "1.0 nack 1", "1.1 nack-result 1 OTHER"]
    found = measured(*lines, answer="nack", stale=[0])
    assert found["false_successes"] == 1
    assert found["false_failures"] == 1


def test_without_exactly_once_delivery_a_client_run_counts_no_false_ack_results() -> None:
    found = measured(*of_each(0, 1, 2, 3), left=[1], exactly_once=False)
    assert "false_successes" not in found
    assert found["left"] == 1


def test_an_acknowledgement_without_a_result_in_a_client_run_is_counted_as_unresolved() -> None:
    assert measured(*of_each(0, 1, 2), "1.0 ack 3")["unresolved"] == 1
    assert measured(*of_each(0, 1, 2))["unhandled"] == 1


def test_redeliveries_are_ignored_when_order_violations_of_a_client_run_are_counted() -> None:
    """1 comes before 0, of the same key. The second delivery of 2 comes after 3."""
    order = (1, 2, 0, 3, 2)
    assert measured(*(f"1.0 delivered {number} id" for number in order))["out_of_order"] == 1


def test_the_delivery_pause_of_a_client_run_with_undelivered_messages_ends_with_the_run() -> None:
    lines = ["1.0 delivered 0 id", "3.0 delivered 1 id"]
    assert measured(*lines)["pause"] == 2.0
    assert measured(*lines, left=[2])["pause"] == 6.0


def test_the_figures_of_a_client_comparison_run_count_messages_dropped_by_the_client() -> None:
    assert measured("1.0 dropped -1", "2.0 dropped -1")["dropped"] == 2


@pytest.mark.parametrize(
    ("broker", "pause", "missed"),
    [
        (OURS, 3.5, ["go/nacks: 3.5 longest pause between deliveries, in seconds, at most 3"]),
        (OURS, 3.0, []),
        (GOOGLE, 3.5, []),
    ],
)
def test_floors_of_a_client_comparison_run_apply_only_to_runs_on_the_pullstream_broker(
    broker: str, pause: float, missed: list[str]
) -> None:
    assert Run("nacks", "go", broker, 0, {"pause": pause}).missed() == missed


def test_each_client_comparison_scenario_has_a_floor_for_each_client() -> None:
    assert all(floors(client, each) for client in ("go", "node") for each in SCENARIOS.values())


def test_the_spread_of_equal_figures_of_client_runs_is_written_as_one_number() -> None:
    assert spread([2.0, 2.0]) == "2"
    assert spread([3.0, 1.0, 2.25]) == "1 / 2.2 / 3"
    assert spread([]) == "-"


def test_figures_of_a_pipeline_run_are_computed_from_the_messages_that_the_pipeline_reads() -> None:
    events = [
        Event.parse(f"{seconds} delivered {number}")
        for seconds, number in [(2.0, 1), (3.0, 0), (3.5, 0), (7.0, 2)]
    ]
    found = reading(events, messages=4, per_key=2)
    assert found == {"unread": 1, "repeated": 1, "reading": 5.0, "out_of_order": 1}
    # Without order there is no wrong one.
    assert "out_of_order" not in reading(events, messages=4, per_key=0)


def test_figures_can_be_computed_for_a_pipeline_run_that_reads_no_messages() -> None:
    found = reading([], messages=4, per_key=0)
    assert found == {"unread": 4, "repeated": 0, "reading": 0.0}
