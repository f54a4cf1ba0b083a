"""What the programs do in a run, and the floors that our broker must reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """What happens in a run.

    Attributes:
        exactly_once: The subscription has exactly-once delivery.
        ordered: It delivers in order.
        messages: The number of messages. Their numbers begin with 0.
        per_key: How many messages have the same ordering key: 0 to `per_key` - 1, and so on.
        nack_every: The program nacks the first delivery of each number that this divides.
        hold: Where the program holds all messages before it answers them: see receiver.py.
        answer: "ack" or "nack", for held messages.
        stale: How many of the held messages are nacked by another client first.
        deleted: The subscription is deleted while the messages are held.
        fault: The fault of our broker while the program answers, as `pullstream faults add` takes
            it. Google's emulator has none.
        ending: What happens to the program while it holds the messages: "stop", or "kill".
        admin: The program makes administrative calls over HTTP instead (Java).
        pipeline: The program is a pipeline, which reads until it has all messages.
        small_pulls: Our broker answers a Pull with at most 100 messages, as Google's emulator does.
    """

    exactly_once: bool = True
    ordered: bool = False
    messages: int = 40
    per_key: int = 1
    nack_every: int = 0
    hold: str = ""
    answer: str = "ack"
    stale: int = 0
    deleted: bool = False
    fault: str = ""
    ending: str = ""
    admin: bool = False
    pipeline: bool = False
    small_pulls: bool = False


# Messages of a run that stops or kills a program. Each client has threads for so many callbacks.
FEW = 5

SCENARIOS = {
    "nacks": Scenario(ordered=True, messages=3000, per_key=100, nack_every=10),
    "nacks-unordered": Scenario(messages=3000, nack_every=10),
    "nacks-plain-ordered": Scenario(False, True, messages=3000, per_key=100, nack_every=10),
    "nacks-plain": Scenario(False, messages=3000, nack_every=10),
    "one-nack": Scenario(ordered=True, per_key=10, nack_every=40),
    "stale-one": Scenario(hold="later", stale=1),
    "stale-some": Scenario(messages=1500, hold="later", stale=500),
    "stale-most": Scenario(messages=3000, hold="later", stale=2000),
    "stale-all": Scenario(messages=300, hold="later", stale=300),
    "stale-nacks": Scenario(messages=1500, hold="later", stale=500, answer="nack"),
    "deleted": Scenario(hold="later", deleted=True),
    "refused": Scenario(
        hold="later", fault="error:Acknowledge:PERMISSION_DENIED:resource=receiver"
    ),
    "unauthenticated": Scenario(
        hold="later", fault="error:Acknowledge:UNAUTHENTICATED:resource=receiver"
    ),
    "internal": Scenario(
        hold="later", fault="error:Acknowledge:INTERNAL:resource=receiver,times=2"
    ),
    "lost-reply": Scenario(hold="later", fault="lose-reply:Acknowledge:resource=receiver,times=2"),
    "stop": Scenario(messages=FEW, hold="inside", ending="stop"),
    "stop-ordered": Scenario(ordered=True, messages=FEW, hold="inside", ending="stop"),
    "stop-plain": Scenario(False, messages=FEW, hold="inside", ending="stop"),
    "stop-plain-ordered": Scenario(False, True, messages=FEW, hold="inside", ending="stop"),
    "kill": Scenario(messages=FEW, hold="inside", ending="kill"),
    "kill-ordered": Scenario(ordered=True, messages=FEW, hold="inside", ending="kill"),
    "kill-plain": Scenario(False, messages=FEW, hold="inside", ending="kill"),
    "rest": Scenario(admin=True),
    "read": Scenario(False, messages=2000, pipeline=True),
    "read-small-pulls": Scenario(False, messages=2000, pipeline=True, small_pulls=True),
    "read-ordered": Scenario(False, True, messages=250, per_key=50, pipeline=True),
    "read-ordered-small-pulls": Scenario(
        False, True, messages=250, per_key=50, pipeline=True, small_pulls=True
    ),
}


def floors(client: str, scenario: Scenario) -> Mapping[str, float]:
    """Return the most that each figure of our broker may be. The other ones are not limited."""
    if scenario.admin:
        return {"not_ended": 0, "failed_calls": 0}
    if scenario.pipeline:
        return {"not_ended": 0, "unread": 0, "repeated": 0}
    if scenario.ending == "kill":
        return {"early": 0}
    if scenario.deleted:
        # Some clients never report these acknowledgements, and do not end.
        return {"false_successes": 0}
    found: dict[str, float] = {"not_ended": 0}
    if scenario.ending:
        found["early"] = 0
    if scenario.exactly_once:
        found |= {"false_failures": 0, "false_successes": 0, "unresolved": 0}
    if scenario.ordered:
        found["out_of_order"] = 0
    if not scenario.hold or scenario.ending == "stop":
        found |= {"unhandled": 0, "left": 0}
    if client == "go":
        found["dropped"] = 0
    if client == "go" and scenario.nack_every:
        found |= {"seconds": 25, "pause": 3}
    return found
