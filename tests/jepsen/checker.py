"""Decides from a history whether the broker and its clients have kept their promises. Pure.

These events are read; others are there for the reader of an account:

    run         "subscription"  subject: its name; `ordered`, `exactly_once`, `sought`
                "broker killed"
                "time seek"     a seek to a time has ended, subject: the subscription
    publisher   "publish"       subject: the data, KEY:NUMBER or :NUMBER
                "publish ok"    the same subject, with the `id`; "publish failed" with the `error`
    subscriber  "begin"         subject: the data, with `subscription`, `id`, `delivery` and, if the
                                client tells it, the time of the receipt, `received`
                "ack"           the same subject and values, before the call
                "ack ok", "ack failed"
    client      "closed"        a client of our SDK has ended in order: no future may be open
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.event_log import Event, Violation

DURABILITIES = ("memory", "disk", "fsync")
# Class disk loses messages that were confirmed within a span of this many seconds.
MAX_LOSS = 0.5
# The beginning of the names of the official client's processes.
OFFICIAL = "official-"
# Seconds. A seek without an answer may take effect later.
LATE_SEEK = 10.0


class Verdict(NamedTuple):
    """The result of a check.

    Attributes:
        violations: The broken promises.
        lost: The number of confirmed messages that the durability class may lose and did lose.
        figures: Other numbers, by name.
    """

    violations: list[Violation]
    lost: int
    figures: dict[str, int]


class _Publish:
    """One message of a publisher."""

    def __init__(self, asked: Event) -> None:
        self.asked = asked
        self.answer: Event | None = None

    @property
    def is_confirmed(self) -> bool:
        return self.answer is not None and self.answer.what == "publish ok"


class _History:
    """The events of a run, sorted by what they tell."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self.subscriptions: dict[str, dict[str, Any]] = {}
        self.publishes: dict[str, _Publish] = {}
        self.kills: list[float] = []
        # The end of the last seek to a time of each subscription.
        self.sought: dict[str, float] = {}
        self.closed: set[str] = set()
        # The events of each message of each subscription, by (subscription, data).
        self.stories: dict[tuple[str, str], list[Event]] = defaultdict(list)
        for event in self.events:
            self._add(event)

    def _add(self, event: Event) -> None:
        if event.what == "subscription":
            self.subscriptions[event.subject] = event.detail
        elif event.what == "broker killed":
            self.kills.append(event.at)
        elif event.what == "time seek":
            self.sought[event.subject] = event.at + LATE_SEEK
        elif event.what == "closed":
            self.closed.add(event.actor)
        elif event.what == "publish":
            self.publishes[event.subject] = _Publish(event)
        elif event.what.startswith("publish "):
            if event.subject in self.publishes:
                self.publishes[event.subject].answer = event
        elif "subscription" in event.detail:
            self.stories[event.detail["subscription"], event.subject].append(event)

    def life(self, at: float) -> int:
        """Return the number of kills of the broker before a time."""
        return bisect_right(self.kills, at)

    def next_kill(self, at: float) -> float:
        """Return the time of the next kill of the broker after `at`; infinity if there is none."""
        life = self.life(at)
        return self.kills[life] if life < len(self.kills) else float("inf")

    def story(self, subscription: str, data: str) -> list[Event]:
        """Return the events of a message, of the kills since, and of its publish."""
        found = list(self.stories.get((subscription, data), ()))
        if publish := self.publishes.get(data):
            found += [publish.asked, *([publish.answer] if publish.answer else [])]
        begin = min((event.at for event in found), default=0.0)
        end = max((event.at for event in found), default=0.0)
        found += [e for e in self.events if e.actor == "run" and begin <= e.at <= end]
        return sorted(found, key=lambda event: event.at)


def judge(events: Iterable[Event], durability: str) -> Verdict:
    """Judge the events of a run, which are in the order of time.

    Args:
        events: The events.
        durability: The class of the topic: "memory", "disk" or "fsync".
    """
    history = _History(events)
    violations, lost = _lost_messages(history, durability)
    violations += _invented(history)
    violations += _again(history)
    for name, settings in history.subscriptions.items():
        if settings["ordered"]:
            violations += _order(history, name, durability)
    violations += _unresolved(history)
    confirmed = sum(publish.is_confirmed for publish in history.publishes.values())
    figures = {
        "published": len(history.publishes),
        "confirmed": confirmed,
        "callbacks": sum(event.what == "begin" for event in history.events),
        "confirmed acknowledgements": sum(event.what == "ack ok" for event in history.events),
        "kills of the broker": len(history.kills),
    }
    return Verdict(violations, lost, figures)


def _lost_messages(history: _History, durability: str) -> tuple[list[Violation], int]:
    """Find the confirmed messages that a subscription has never received under their id."""
    violations = []
    gone: dict[str, _Publish] = {}
    for data, publish in history.publishes.items():
        if not publish.is_confirmed:
            continue
        assert publish.answer is not None
        for name in history.subscriptions:
            if publish.asked.at < history.sought.get(name, 0.0):
                continue
            begun = [e for e in history.stories.get((name, data), ()) if e.what == "begin"]
            if any(event.detail["id"] == publish.answer.detail["id"] for event in begun):
                continue
            if _may_be_lost(history, publish, durability):
                gone[data] = publish
                continue
            text = (
                f"{data} was confirmed with the id {publish.answer.detail['id']}, "
                f"and {name} never received that message"
            )
            violations.append(Violation("confirmed message lost", text, history.story(name, data)))
    if durability == "disk":
        violations += _spans(history, list(gone.values()))
    return violations, len(gone)


def _may_be_lost(history: _History, publish: _Publish, durability: str) -> bool:
    """Return whether a kill came after the message, in a class that loses messages by a kill."""
    return durability != "fsync" and history.life(publish.asked.at) < len(history.kills)


def _spans(history: _History, lost: list[_Publish]) -> list[Violation]:
    """Check that the messages lost by one kill were confirmed within the documented span.

    A message was confirmed between its call and its answer, so only a distance from an answer to a
    later call proves a longer span. Messages that were under way during a kill are left out.
    """
    lives: dict[int, list[_Publish]] = defaultdict(list)
    for publish in lost:
        assert publish.answer is not None
        life = history.life(publish.asked.at)
        if history.life(publish.answer.at) == life:
            lives[life].append(publish)
    violations = []
    for publishes in lives.values():
        first = min(publishes, key=lambda p: p.answer.at if p.answer else 0.0)
        last = max(publishes, key=lambda p: p.asked.at)
        assert first.answer is not None
        span = last.asked.at - first.answer.at
        if span > MAX_LOSS:
            text = f"one kill lost messages that were confirmed {span:.2f} s apart"
            story = [first.asked, first.answer, last.asked, *([last.answer] if last.answer else [])]
            violations.append(Violation("loss above the bound", text, story))
    return violations


def _invented(history: _History) -> list[Violation]:
    """Find messages that nobody published, and ids that name two messages."""
    violations = []
    data_of: dict[str, str] = {}
    for (name, data), story in history.stories.items():
        begun = [event for event in story if event.what == "begin"]
        if begun and data not in history.publishes:
            text = f"{data} was delivered, and nobody published it"
            violations.append(Violation("invented message", text, begun))
        for event in begun:
            other = data_of.setdefault(event.detail["id"], data)
            if other != data:
                text = f"the id {event.detail['id']} names {other} and {data}"
                both = history.story(name, other) + history.story(name, data)
                violations.append(Violation("id used twice", text, both))
    return violations


def _again(history: _History) -> list[Violation]:
    """Find confirmed exactly-once acknowledgements whose message was delivered afterwards."""
    violations = []
    for (name, data), story in history.stories.items():
        settings = history.subscriptions[name]
        if not settings["exactly_once"] or settings["sought"]:
            continue
        confirmed: dict[str, Event] = {}
        acked = {event.detail["delivery"]: event for event in story if event.what == "ack ok"}
        for event in story:
            message_id = event.detail["id"]
            if event.what == "ack ok":
                confirmed.setdefault(message_id, event)
            elif event.what == "begin" and message_id in confirmed:
                first = confirmed[message_id]
                received = event.detail["received"]
                # Without the time of its receipt, only a second confirmation is a proof: the
                # message may have waited in the client since its lease ended.
                is_late = received > first.at if received else event.detail["delivery"] in acked
                if is_late:
                    crashed = history.life(first.at) < history.life(event.at)
                    kind = "lost ack" if crashed else "acked message came again"
                    text = f"{data} (id {message_id}) came again after a confirmed acknowledgement"
                    violations.append(Violation(kind, text, history.story(name, data)))
                    break
    return violations


def _order(history: _History, name: str, durability: str) -> list[Violation]:
    """Find first callbacks that began before an earlier message of their key was handled.

    Only confirmed messages have a place in the order of their key. Where the class allows the loss
    of messages, the next kill ends it.

    The official client runs two callbacks of a key at the same time, on two threads, when it has
    dropped a copy of a message that came again: it begins one held message for each message that
    ends, also for copies (`MessagesOnHold.activate_ordering_keys`). So the order within one of its
    processes is not judged. Our clients show whether the broker delivers in order.
    """
    keys: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for subscription, data in history.stories:
        key, _, number = data.partition(":")
        if subscription == name and key:
            keys[key].append((int(number), data))
    violations = []
    for numbers in keys.values():
        latest: tuple[float, str] = (0.0, "")
        latest_begin = Event(0.0, "", "", "", {})
        for _, data in sorted(numbers):
            story = history.stories[name, data]
            begun = next((event for event in story if event.what == "begin"), None)
            if begun is None:
                continue
            is_foreign = begun.actor == latest_begin.actor and begun.actor.startswith(OFFICIAL)
            if begun.at < latest[0] and not is_foreign:
                text = f"{name} began {data} before {latest[1]} of the same key was handled"
                both = history.story(name, latest[1]) + history.story(name, data)
                both.sort(key=lambda event: event.at)
                violations.append(Violation("reordered key", text, both))
                break
            publish = history.publishes.get(data)
            if publish is None or not publish.is_confirmed:
                continue
            # Not handled before the end of the run: nothing of the key may come after it.
            handled = next((event.at for event in story if event.what == "ack"), float("inf"))
            if durability != "fsync":
                # A kill may lose the message, and a client may begin its copy after that.
                handled = min(handled, history.next_kill(publish.asked.at))
            if (handled, data) > latest:
                latest, latest_begin = (handled, data), begun
    return violations


def _unresolved(history: _History) -> list[Violation]:
    """Find futures without a result in processes that have ended in order."""
    violations = []
    for data, publish in history.publishes.items():
        if publish.answer is None and publish.asked.actor in history.closed:
            text = f"the publish of {data} has no result"
            violations.append(Violation("unresolved future", text, [publish.asked]))
    for (_, data), story in history.stories.items():
        answered = {e.detail["delivery"] for e in story if e.what in ("ack ok", "ack failed")}
        for event in story:
            if event.what != "ack" or event.actor not in history.closed:
                continue
            if event.detail.get("tracked", True) and event.detail["delivery"] not in answered:
                text = f"the acknowledgement of {data} has no result"
                violations.append(Violation("unresolved future", text, story))
    return violations
