"""Small sets as plain values, for sets that mostly have one or two members.

With ten thousand subscribers there are tens of thousands of such sets. A tuple with one member
takes 64 bytes, a set or dict with one member 232. So short sets are tuples.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

T = TypeVar("T")

# The members are in insertion order.
Few: TypeAlias = "tuple[T, ...] | dict[T, None]"

_LONGEST_TUPLE = 4


def with_item(members: Few[T], member: T) -> Few[T]:
    """Return the set with `member`. Use the result instead of `members`, which may change."""
    if isinstance(members, dict):
        members[member] = None
        return members
    if member in members:
        return members
    more = (*members, member)
    return more if len(more) <= _LONGEST_TUPLE else dict.fromkeys(more)


def without_item(members: Few[T], member: T) -> Few[T]:
    """Return the set without `member`. Use the result instead of `members`, which may change."""
    if isinstance(members, dict):
        members.pop(member, None)
        return members
    return tuple(each for each in members if each != member)
