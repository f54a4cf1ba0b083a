"""The lines that the programs print, and the figures of one run that follow from them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

SUCCESS = "SUCCESS"

# The figures in the order of the table, with their descriptions. Less is better, for each of them.
FIGURES = {
    "not_ended": "programs that did not end",
    "unhandled": "messages not acknowledged by the program",
    "left": "messages left in the backlog",
    "out_of_order": "first deliveries out of order",
    "false_failures": "acks that were taken, reported as failed",
    "false_successes": "acks that were not taken, reported as done",
    "unresolved": "acks without a result",
    "dropped": "messages dropped by the client unseen",
    "early": "redeliveries before the ack deadline",
    "seconds": "seconds until the last result",
    "pause": "longest pause between deliveries, in seconds",
    "failed": "acks reported as failed, for any reason",
    "failed_calls": "failed calls",
    "unread": "messages that the pipeline has not read",
    "repeated": "messages that the pipeline has read again",
    "reading": "seconds from the first message to the last",
}

Figures = dict[str, float]


@dataclass(frozen=True)
class Event:
    """A line of a program.

    Attributes:
        seconds: The time since the program's start.
        kind: "delivered", "ack", "ack-result", "nack", "nack-result", or "dropped".
        number: The number of the message.
        detail: The ack id of a delivery, the outcome of a result.
    """

    seconds: float
    kind: str
    number: int
    detail: str = ""

    @classmethod
    def parse(cls, line: str) -> Event:
        seconds, kind, number, *detail = line.split()
        return cls(float(seconds), kind, int(number), *detail)


@dataclass(frozen=True)
class Truth:
    """What the broker says after a run.

    Attributes:
        left: The numbers of the messages whose answer was not taken: they are in the backlog.
        early: How many messages another consumer received before their ack deadline.
        stale: The numbers of the messages whose lease another client ended.
    """

    left: frozenset[int]
    early: int = 0
    stale: frozenset[int] = field(default_factory=frozenset)


def figures(
    events: Sequence[Event],
    truth: Truth,
    *,
    messages: int,
    per_key: int,
    answer: str,
    exactly_once: bool,
    ordered: bool,
    end: float,
) -> Figures:
    """Return the figures of a run.

    Args:
        events: The lines of the program.
        truth: The state of the broker afterwards.
        messages: The number of messages. Their numbers begin with 0.
        per_key: How many messages have the same ordering key: 0 to `per_key` - 1, and so on.
        answer: "ack" or "nack", the answers whose results count.
        exactly_once: Without it, the results say nothing, and are not counted.
        ordered: Without it, the order of the messages says nothing.
        end: The time when the program was told to stop, in seconds since its start.
    """
    answers = Counter(event.number for event in events if event.kind == answer)
    results = [event for event in events if event.kind == f"{answer}-result"]
    done = {event.number for event in results if event.detail == SUCCESS}
    failed = [event.number for event in results if event.detail != SUCCESS]
    found: Figures = {
        "unhandled": messages - len(answers),
        "left": len(truth.left),
        "dropped": sum(event.kind == "dropped" for event in events),
        "early": truth.early,
        "seconds": max((event.seconds for event in results), default=0.0),
        "pause": longest_pause(events, end if truth.left else 0.0),
    }
    if ordered:
        found["out_of_order"] = out_of_order(events, per_key)
    if exactly_once:
        taken = set(range(messages)) - truth.left
        if answer == "nack":
            # A stale message came again without this nack.
            taken -= truth.stale
        found["failed"] = len(failed)
        found["false_failures"] = len(set(failed) & taken - done)
        found["false_successes"] = len(done - taken | delivered_again(events))
        found["unresolved"] = answers.total() - len(results)
    return found


def reading(events: Sequence[Event], *, messages: int, per_key: int) -> Figures:
    """Return the figures of a pipeline, which reports no acknowledgements.

    Args:
        events: The lines of the program.
        messages: The number of messages.
        per_key: How many messages have the same ordering key; 0 without order.
    """
    numbers = Counter(event.number for event in events)
    times = [event.seconds for event in events]
    return {
        "unread": messages - len(numbers),
        "repeated": numbers.total() - len(numbers),
        "reading": max(times, default=0.0) - min(times, default=0.0),
        **({"out_of_order": out_of_order(events, per_key)} if per_key else {}),
    }


def out_of_order(events: Iterable[Event], per_key: int) -> int:
    """Return how many first deliveries came after a later message of their key."""
    seen: set[int] = set()
    highest: dict[int, int] = {}
    count = 0
    for event in events:
        if event.kind != "delivered" or event.number in seen:
            continue
        seen.add(event.number)
        key = event.number // per_key
        count += event.number < highest.get(key, -1)
        highest[key] = max(event.number, highest.get(key, -1))
    return count


def delivered_again(events: Iterable[Event]) -> set[int]:
    """Return the numbers that were delivered after a successful acknowledgement."""
    done: set[int] = set()
    again: set[int] = set()
    for event in events:
        if event.kind == "ack-result" and event.detail == SUCCESS:
            done.add(event.number)
        elif event.kind == "delivered" and event.number in done:
            again.add(event.number)
    return again


def longest_pause(events: Iterable[Event], end: float) -> float:
    """Return the longest time between two deliveries, or between the last one and `end`."""
    times = sorted(event.seconds for event in events if event.kind == "delivered")
    if times and end > times[-1]:
        times.append(end)
    return max((after - before for before, after in pairwise(times)), default=0.0)
