"""Decides from the events of a run whether each client has told the truth. Pure.

A request of a client has a name: "ack ID", "nack ID", "extend ID" or "publish DATA". These events
have it as their subject:

    client   asked      the program made the request; `tracked` if it has a future
             success    the future succeeded; of a publish with the `id`
             failure    the future failed, with the `error` and its `text`. `open`: the error says
                        that the request may have succeeded
             reported   a hook told that the lease or the request is lost
    server   arrived    the server has read the request
             took       the request took effect; of a publish with the `id` of the stored message
             refused    an answer of the server named the request as refused

Other events have a message KEY:NUMBER as their subject: "delivered" and "ended" when the server
begins and ends a lease, "begin" when its callback begins, with the time of its receipt
(`received`), and "handled". "closed" says that a client has ended in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from tests.event_log import Event, Violation


class Verdict(NamedTuple):
    """The result of a check.

    Attributes:
        counts: The futures by kind of request ("ack") and result: "truthful", "false" or
            "unresolved".
        violations: The broken promises.
    """

    counts: dict[str, Counter[str]]
    violations: list[Violation]


def judge(events: Iterable[Event]) -> Verdict:
    """Judge the events of a run, which are in the order of time."""
    history = list(events)
    by_request: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        if event.subject:
            by_request[event.subject].append(event)
    closed = {event.actor for event in history if event.what == "closed"}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    violations: list[Violation] = []
    for subject, story in by_request.items():
        asked = [event for event in story if event.what == "asked"]
        if not asked:
            continue
        kind = subject.partition(" ")[0]
        if not asked[0].detail["tracked"]:
            if asked[0].actor in closed and _is_lost(story):
                text = f"{subject} was asked for, never reached the server, and nobody was told"
                violations.append(Violation("lost ack", text, story))
            continue
        found = _of_future(subject, story)
        counts[kind][_RESULTS.get(found.kind, "false") if found else "truthful"] += 1
        if found:
            violations.append(found)
    violations += _order(history, by_request)
    violations += _stored_order(by_request)
    violations += _again(history)
    return Verdict(dict(counts), violations)


_RESULTS = {"unresolved future": "unresolved"}


def _is_lost(story: list[Event]) -> bool:
    return not any(event.what in ("arrived", "took", "refused", "reported") for event in story)


def _of_future(subject: str, story: list[Event]) -> Violation | None:
    result = next((event for event in story if event.what in ("success", "failure")), None)
    if result is None:
        return Violation("unresolved future", f"{subject} has no result", story)
    taken = [event for event in story if event.what == "took"]
    if result.what == "success":
        ids = {event.detail.get("id") for event in taken}
        if not taken:
            return Violation("false success", f"{subject} succeeded, and did not happen", story)
        if result.detail.get("id") not in ids:
            text = f"{subject} succeeded with the id {result.detail.get('id')!r} of no such message"
            return Violation("false success", text, story)
        return None
    # The SDK extends leases itself, so an extension may have succeeded before this one was refused.
    is_repeated = subject.startswith("extend") and any(event.what == "refused" for event in story)
    if taken and not result.detail["open"] and not is_repeated:
        text = f"{subject} failed as if it had no effect, and it took effect"
        return Violation("false failure", text, story)
    return None


def _order(history: list[Event], by_request: dict[str, list[Event]]) -> list[Violation]:
    """Check that no callback overtakes an unhandled message of its key, in each client."""
    violations = []
    handled: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    story: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        message = event.detail.get("message", event.subject)
        if event.what not in ("begin", "handled", "delivered", "ended") or ":" not in message:
            continue
        key, _, digits = message.partition(":")
        if not key:
            continue
        story[key].append(event)
        place = event.actor, key
        if event.what == "handled":
            handled[place] = max(handled[place], int(digits))
        elif event.what == "begin" and int(digits) > handled[place] + 1:
            missing = f"{key}:{handled[place] + 1}"
            text = f"{message} began before {missing} was handled"
            proof = [*_requests(by_request, story[key], missing), *story[key][-MOST_NEIGHBOURS:]]
            proof.sort(key=lambda each: each.at)
            violations.append(Violation("reordered key", text, proof))
            handled[place] = int(digits)
    return violations


def _requests(by_request: dict[str, list[Event]], story: list[Event], message: str) -> list[Event]:
    """Return the events of the acks and nacks of all deliveries of a message."""
    ids = [e.detail["ack_id"] for e in story if e.what == "delivered" and e.subject == message]
    kinds = ("ack", "nack")
    return [e for i in ids for kind in kinds for e in by_request.get(f"{kind} {i}", ())]


def _stored_order(by_request: dict[str, list[Event]]) -> list[Violation]:
    """Check that the confirmed messages of each key are stored in the order of their numbers."""
    first: dict[str, list[tuple[float, int, Event]]] = defaultdict(list)
    for subject, story in by_request.items():
        kind, _, data = subject.partition(" ")
        key, _, digits = data.partition(":")
        if kind != "publish" or not key or not any(e.what == "success" for e in story):
            continue
        took = next((event for event in story if event.what == "took"), None)
        if took is not None:
            first[key].append((took.at, int(digits), took))
    violations = []
    for key, stored in first.items():
        stored.sort(key=lambda each: each[0])
        for (_, before, one), (_, after, other) in pairwise(stored):
            if after < before:
                text = f"{key}:{after} was stored after {key}:{before}"
                violations.append(Violation("reordered key", text, [one, other]))
    return violations


# Events of a key in the account of a reordered key.
MOST_NEIGHBOURS = 15


def _again(history: list[Event]) -> list[Violation]:
    """Check that no message is received after its acknowledgement was confirmed."""
    confirmed: dict[str, tuple[float, str]] = {}
    violations = []
    asked: dict[str, str] = {}
    for event in history:
        if event.what == "asked" and event.subject.startswith("ack "):
            if event.detail.get("exactly_once"):
                asked[event.subject] = event.detail["message"]
        elif event.what == "success" and event.subject in asked:
            confirmed.setdefault(asked[event.subject], (event.at, event.subject))
        elif event.what == "begin" and event.subject in confirmed:
            at, ack = confirmed[event.subject]
            if event.detail["received"] > at:
                text = f"{event.subject} came again after a confirmed acknowledgement"
                story = [e for e in history if e.subject in (event.subject, ack)]
                violations.append(Violation("acked message came again", text, story))
    return violations
