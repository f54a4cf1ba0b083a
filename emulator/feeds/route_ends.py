"""What a router needs of the two feeds that it joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from emulator.engine.moment import Moment
from protocol.messages import feeds_pb2 as feeds

if TYPE_CHECKING:
    from emulator.engine import Record

    from .copying import Chosen


class Source(Protocol):
    """A feed that is copied from."""

    @property
    def head(self) -> int:
        """The newest number that was given."""

    def gap(self, after: int) -> feeds.Gap | None:
        """What was lost right behind a number, if anything."""

    def after(self, seq: int, limit: int) -> Sequence[Record]:
        """The next messages of the window, as far as there is no gap between them."""


class Dest(Protocol):
    """A feed that is copied to."""

    def room_for(self, chosen: Chosen, now: Moment) -> int:
        """How many of some messages, from the first on, can be taken now."""

    def take(self, chosen: Chosen, count: int, now: Moment) -> None:
        """Append copies of the first ones, for which there is room."""

    def lose(self, count: int) -> None:
        """So many messages that were to come are lost: readers get a gap, SOURCE_TRIM."""


class Ends(Protocol):
    """All feeds, by the names of their topics."""

    def source(self, topic: str) -> Source:
        """Raises NotFound if there is no topic of this name."""

    def check(self, source: str, dest: str, *, create: bool) -> None:
        """Refuse topics that cannot be ends; nothing is made.

        Raises:
            NotFound: there is no source; or no destination, and `create` says not to make it.
            FailedPrecondition: the destination has a schema, which a copy might not obey.
        """

    def dest(self, topic: str) -> Dest | None:
        """Makes the topic if there is none; None if it can take nothing now."""

    def forget(self, topic: str) -> None:
        """A topic is no router's destination any more."""
