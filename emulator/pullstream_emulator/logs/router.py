"""One router: its position in the source, and its next step."""

from __future__ import annotations

from enum import Enum

from pullstream_emulator.engine.now import Now
from pullstream_protocol.filter import compile_filter
from pullstream_protocol.messages import feeds_pb2 as feeds

from .record_copies import ChosenRecords, CopyBatch, CopyBatches, CopyForm
from .router_endpoints import RouterEndpoints

# Most messages that a router examines in one step. After it, other routers have their turn.
MAX_PER_STEP = 1000


class RouterPhase(Enum):
    """State of a router. Forwarder makes the transitions."""

    # There is nothing to copy.
    IDLE = "idle"
    # It is in the queue, because there may be something to copy.
    READY = "ready"
    # Its destination had no room.
    WAITING = "waiting"
    GONE = "gone"


class Router:
    """Copies the source's records after `position`, in order, and passes on every gap.

    Args:
        config: The complete settings.
        position: The position to start at.
        forwarded: The number of messages copied before.

    Attributes:
        config: The complete settings, without output-only fields.
        position: The last number of the source that is finished: copied, rejected by the filter, or
            lost, in which case the destination's readers see a gap.
        forwarded: The number of messages copied.
        examined: The number of messages examined by the last step; lost ones do not count.
    """

    def __init__(self, config: feeds.Router, position: int, forwarded: int = 0) -> None:
        self.name = config.name
        self.source = config.source
        self.dest = config.dest
        self.position = position
        self.forwarded = forwarded
        self.phase = RouterPhase.IDLE
        self.examined = 0
        self._is_on_cycle = False
        # Records that were appended to the source while the router was caught up. They may have
        # left the source's window before the router's turn comes.
        self._fresh: CopyBatch | None = None
        # The source may have records after these.
        self._is_behind = True
        # The number of messages that the next step examines.
        self._most = MAX_PER_STEP
        self.configure(config)

    def configure(self, config: feeds.Router) -> None:
        """Change the settings; source and destination stay the same."""
        self.config = config
        self._accepts = compile_filter(config.filter) if config.filter else None
        self._form = CopyForm(
            config.filter, config.preserve_node, config.preserve_tag, self._is_on_cycle
        )

    @property
    def is_on_cycle(self) -> bool:
        """Whether copies may come back to the source, so hops are counted. RouteGraph sets it."""
        return self._is_on_cycle

    @is_on_cycle.setter
    def is_on_cycle(self, is_on_cycle: bool) -> None:
        self._is_on_cycle = is_on_cycle
        self.configure(self.config)

    def state(self) -> feeds.Router:
        """Return the settings and the progress."""
        state = feeds.Router(forwarded=self.forwarded, position=self.position)
        state.MergeFrom(self.config)
        return state

    def offer(self, batch: CopyBatch) -> None:
        """Take a batch that was just appended to the source."""
        if self._fresh is None and batch.first == self.position + 1:
            self._fresh = batch
        else:
            self._is_behind = True

    def fall_behind(self) -> None:
        """Note that the source has records that are not offered."""
        self._is_behind = True

    def step(self, endpoints: RouterEndpoints, batches: CopyBatches, now: Now) -> RouterPhase:
        """Copy as many of the next messages as fit; return the phase after the step.

        Args:
            endpoints: The feeds that routers connect.
            batches: The batches read in this turn.
            now: The present time.
        """
        self.examined = 0
        fresh, self._fresh = self._fresh, None
        if fresh is not None:
            return self._forward(fresh, endpoints, now)
        source = endpoints.source(self.source)
        gap = source.gap(self.position)
        if gap is not None:
            return self._lose(gap.to_seq, endpoints)
        records = source.after(self.position, self._most)
        if records:
            return self._forward(batches.make_batch(self.source, records), endpoints, now)
        # The numbers up to the examined one have no record: their records were deleted on request.
        # A gap may follow them.
        self.position = source.examined(self.position, records, self._most)
        self._is_behind = self.position < source.head
        return RouterPhase.READY if self._is_behind else RouterPhase.IDLE

    def _forward(self, batch: CopyBatch, endpoints: RouterEndpoints, now: Now) -> RouterPhase:
        self.examined = len(batch.records)
        chosen = batch.chosen(self._form, self._accepts)
        copied = self._copy(chosen, endpoints, now) if chosen.seqs else 0
        self.forwarded += copied
        if copied < len(chosen.seqs):
            # Stop before the first message that has to wait. Until it fits, each retry examines one
            # message only, because retries are frequent and examining more would be wasted.
            self.position = chosen.seqs[copied] - 1
            self._is_behind = True
            self._most = 1
            return RouterPhase.WAITING
        self.position = batch.last
        self._most = MAX_PER_STEP
        return RouterPhase.READY if self._is_behind else RouterPhase.IDLE

    def _copy(self, chosen: ChosenRecords, endpoints: RouterEndpoints, now: Now) -> int:
        """Copy the messages that fit; return their number."""
        dest = endpoints.dest(self.dest)
        if dest is None:
            return 0
        room = dest.room_for(chosen, now)
        if room:
            dest.take(chosen, room, now)
        return room

    def _lose(self, last: int, endpoints: RouterEndpoints) -> RouterPhase:
        """Report the loss of the numbers up to `last` to the destination's readers."""
        dest = endpoints.dest(self.dest)
        if dest is None:
            return RouterPhase.WAITING
        dest.lose(last - self.position)
        self.position = last
        return RouterPhase.READY
