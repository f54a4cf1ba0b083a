"""The state of a folder, as its coordinator knows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .layout import Owner, Plan, Segment


@dataclass
class State:
    """The plans of a folder, and the ids that they have taken.

    Attributes:
        owner: Its right to plan.
        mark: The newest committed plan.
        replayable_from: The oldest plan whose files are still there.
        plans: These plans and the newer ones.
        ids: By plan: the ids that it has taken and that are not in the index, in their order.
        last_numbers: By receiver: the last number that was planned.
        seen: By segment that waits: the uptime of coordinators when it was seen first.
    """

    owner: Owner
    mark: int
    replayable_from: int
    plans: dict[int, Plan] = field(default_factory=dict)
    ids: dict[int, dict[str, None]] = field(default_factory=dict)
    last_numbers: dict[str, int] = field(default_factory=dict)
    seen: dict[Segment, float] = field(default_factory=dict)

    def add(self, plan: Plan) -> None:
        """Add a plan."""
        self.plans[plan.number] = plan
        for part in plan.parts:
            name, number = part.segment
            self.last_numbers[name] = max(self.last_numbers.get(name, 0), number)

    def segments(self, last: int) -> set[Segment]:
        """Return the segments of the plans up to a number."""
        plans = (plan for plan in self.plans.values() if plan.number <= last)
        return {part.segment for plan in plans for part in plan.parts}
