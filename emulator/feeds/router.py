"""One router: how far it is in its source, and its next step."""

from __future__ import annotations

from enum import Enum

from emulator.engine.filter import compile_filter
from emulator.engine.moment import Moment
from protocol.messages import feeds_pb2 as feeds

from .copying import Batch, Batches, Chosen, Form
from .route_ends import Ends

# Most messages that a router looks at in one step, after which it is another one's turn.
MAX_PER_STEP = 1000


class Phase(Enum):
    """What becomes of a router next. See Forwarder, which moves it from one to another."""

    # There is nothing to copy.
    IDLE = "idle"
    # It stands in the queue, as there may be something.
    READY = "ready"
    # Its destination took no more.
    WAITING = "waiting"
    GONE = "gone"


class Router:
    """Copies what its source has after `position`, in order, and forgets nothing unsaid.

    config: the settings, complete, with nothing that is only told.
    position: the last number of the source that is done with: copied, kept back by the filter, or
        lost, of which the destination's readers were told.
    forwarded: how many messages it has copied.
    looked_at: how many messages the last step has looked at; what is lost is not.
    """

    def __init__(self, config: feeds.Router, position: int, forwarded: int = 0) -> None:
        self.name = config.name
        self.source = config.source
        self.dest = config.dest
        self.position = position
        self.forwarded = forwarded
        self.phase = Phase.IDLE
        self.looked_at = 0
        self._is_on_cycle = False
        # What was appended to the source while the router was caught up. It may have left the
        # source's window again before the router's turn comes.
        self._fresh: Batch | None = None
        # More may have come than that.
        self._is_behind = True
        # How many messages the next step looks at.
        self._most = MAX_PER_STEP
        self.configure(config)

    def configure(self, config: feeds.Router) -> None:
        """Take other settings, of the same source and destination."""
        self.config = config
        self._accepts = compile_filter(config.filter) if config.filter else None
        self._form = Form(
            config.filter, config.preserve_node, config.preserve_tag, self._is_on_cycle
        )

    @property
    def is_on_cycle(self) -> bool:
        """Its copies may come back to its source, so they are counted. RouteGraph sets it."""
        return self._is_on_cycle

    @is_on_cycle.setter
    def is_on_cycle(self, is_on_cycle: bool) -> None:
        self._is_on_cycle = is_on_cycle
        self.configure(self.config)

    def state(self) -> feeds.Router:
        """The settings, and how far it is."""
        state = feeds.Router(forwarded=self.forwarded, position=self.position)
        state.MergeFrom(self.config)
        return state

    def offer(self, batch: Batch) -> None:
        """This was just appended to the source."""
        if self._fresh is None and batch.first == self.position + 1:
            self._fresh = batch
        else:
            self._is_behind = True

    def fall_behind(self) -> None:
        """The source has more, which is not offered."""
        self._is_behind = True

    def step(self, ends: Ends, batches: Batches, now: Moment) -> Phase:
        """Copy the next messages, as many as there is room for; returns the phase after it."""
        self.looked_at = 0
        fresh, self._fresh = self._fresh, None
        if fresh is not None:
            return self._forward(fresh, ends, now)
        source = ends.source(self.source)
        gap = source.gap(self.position)
        if gap is not None:
            return self._lose(gap.to_seq, ends)
        records = source.after(self.position, self._most)
        if records:
            return self._forward(batches.of(self.source, records), ends, now)
        # What numbers there may be have no message: it was deleted on purpose. Behind them there
        # may be a gap.
        self.position = source.examined(self.position, records, self._most)
        self._is_behind = self.position < source.head
        return Phase.READY if self._is_behind else Phase.IDLE

    def _forward(self, batch: Batch, ends: Ends, now: Moment) -> Phase:
        self.looked_at = len(batch.records)
        chosen = batch.chosen(self._form, self._accepts)
        copied = self._copy(chosen, ends, now) if chosen.seqs else 0
        self.forwarded += copied
        if copied < len(chosen.seqs):
            # Up to the first that has to wait. Whether there is room for it is tried often, and
            # nothing else is to be copied in vain each time.
            self.position = chosen.seqs[copied] - 1
            self._is_behind = True
            self._most = 1
            return Phase.WAITING
        self.position = batch.last
        self._most = MAX_PER_STEP
        return Phase.READY if self._is_behind else Phase.IDLE

    def _copy(self, chosen: Chosen, ends: Ends, now: Moment) -> int:
        """Copy what there is room for; returns how many that were."""
        dest = ends.dest(self.dest)
        if dest is None:
            return 0
        room = dest.room_for(chosen, now)
        if room:
            dest.take(chosen, room, now)
        return room

    def _lose(self, last: int, ends: Ends) -> Phase:
        """Tell the destination's readers that what comes next, up to a number, is lost."""
        dest = ends.dest(self.dest)
        if dest is None:
            return Phase.WAITING
        dest.lose(last - self.position)
        self.position = last
        return Phase.READY
