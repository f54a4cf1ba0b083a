"""Sets that mostly have a member or two, as plain values.

Ten thousand subscribers have such sets by the ten thousand. A tuple of one takes 64 bytes, a set or
a dict of one 232; so they are tuples as long as they are short.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

T = TypeVar("T")

# In the order of adding.
Few: TypeAlias = "tuple[T, ...] | dict[T, None]"

_LONGEST_TUPLE = 4


def plus(members: Few[T], member: T) -> Few[T]:
    """The set with a member more, which takes the place of `members`."""
    if isinstance(members, dict):
        members[member] = None
        return members
    if member in members:
        return members
    more = (*members, member)
    return more if len(more) <= _LONGEST_TUPLE else dict.fromkeys(more)


def minus(members: Few[T], member: T) -> Few[T]:
    """The set without a member, which takes the place of `members`."""
    if isinstance(members, dict):
        members.pop(member, None)
        return members
    return tuple(each for each in members if each != member)
