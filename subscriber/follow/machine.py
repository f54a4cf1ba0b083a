"""How a follower gets from the past of a log to its end, and stays there: rules without threads.

    PULL --nearly nothing left--> SUBSCRIBE --opened at H--> LAST_PULL --cursor >= H--> DRAIN
      ^                               |                          |                        |
      |                               |                          |                  buffer empty
      +-- a hole, or the stream is ---+--------------------------+----------+             |
          lost, silent, or behind                                           +-- LIVE <----+

The stream is asked for before the last pull, so that every record comes by one of the two: those up
to H, where the stream begins, by pulling, all later ones by the stream. What comes by both is
skipped. What the buffer had to drop is a hole before the next run, and is pulled again.

After three falls within a minute the stream is left alone for a minute, with long polls in its
place (POLL): to a handler that is a little too slow, each return to it would cost more than it
brings, and where streams are cut on the way none would ever stand.
"""

from __future__ import annotations

from collections import deque

from subscriber.feeds.frames import GapReason
from subscriber.streaming.backoff import Backoff

from .actions import Action, Close, Deliver, LeaveStream, OpenStream, Read, Wait
from .events import Checkpoint, CloseReason, FallCause
from .news import News
from .pace import Attempts, Falls
from .push import Push
from .record import Record
from .runs import Answer, Run
from .settings import Rules
from .states import FollowState, may_follow

# One long poll at most, in seconds; the broker's own limit is 30.
_LONG_POLL = 20.0


class FollowMachine:
    """The state of one follower. Events come in by methods, actions go out by `next`.

    The shell carries out one action after the other, and each to its end before it asks for the
    next. Meanwhile events of the stream may come in; those of a stream that was left change
    nothing. `now` is monotonic, in seconds. Not thread-safe.

    Args:
        start: where to begin; None: at the end, with what is appended from now on.
    """

    def __init__(
        self, start: Checkpoint | None, rules: Rules, backoff: Backoff | None = None
    ) -> None:
        self.state: FollowState = FollowState.PULL
        # Up to where records were handed out; None until a first answer tells where the end is.
        self.cursor: Checkpoint | None = start
        # The newest number that was heard of.
        self.head_seq: int = 0
        self._rules = rules
        self._attempts = Attempts(rules.give_up_after, backoff)
        self._falls = Falls()
        self._outbox: deque[Action] = deque()
        self._news = News(self._outbox.append)
        self._push = Push(rules)
        # The last pull found so little that the stream may take over.
        self._is_near = False
        # The user's number was one that the log had not come to.
        self._began_ahead = False

    @property
    def is_caught_up(self) -> bool:
        return self._news.is_caught_up

    @property
    def falls(self) -> int:
        """How often a stream had to be left."""
        return self._falls.count

    @property
    def buffered(self) -> int:
        """Records that wait in the live buffer."""
        return len(self._push.buffer)

    # ---- events: reads -------------------------------------------------------------------------

    def answered(self, answer: Answer, now: float) -> None:
        """A read has brought this."""
        if self.state is FollowState.CLOSED:
            return
        self._attempts.succeeded()
        self.head_seq = answer.head_seq
        if self._is_ahead(answer):
            # Nothing to tell, or to hand out, until the log has come so far.
            self.cursor = Checkpoint(self._seq, answer.epoch)
            self._began_ahead = self._is_near = True
            return
        if self._is_another_life(answer.epoch):
            # All numbers begin anew: what a stream of the earlier life has brought is void.
            if self._push.is_wanted:
                self._fall("topic deleted", now)
            self.cursor = Checkpoint(0, answer.epoch)
        before = answer.run.to_seq if self.cursor is None else self.cursor.seq
        self.cursor = Checkpoint(before, answer.epoch)
        lag = answer.head_seq - before
        self._is_near = answer.caught_up and lag < max(self._rules.live_buffer / 2, 1)
        if answer.gap is not None:
            self._news.gap(answer.gap, self._seq)
        self._outbox.append(self._deliver(answer.run))
        if self.state is FollowState.POLL:
            self._judge_poll()

    def failed(self, error: Exception, now: float) -> None:
        """A read has failed, in a way that the next one may not."""
        # Until one succeeds nobody knows what is there.
        self._news.fell_behind(self.cursor, "stream lost")
        if self._attempts.failed(now):
            self.stop(CloseReason.SERVER_GONE, error)

    # ---- events: the stream --------------------------------------------------------------------

    def opened(self, stream: int, after_seq: int, epoch: int, now: float) -> None:
        """The stream stands: it brings everything after `after_seq`."""
        if self._push.hears(stream, now) and self.state is FollowState.SUBSCRIBE:
            if self._is_another_life(epoch):
                self._fall("topic deleted", now)
                return
            self._push.begins_after = after_seq
            self._move(FollowState.LAST_PULL)

    def arrived(self, stream: int, run: Run, head_seq: int, now: float) -> None:
        """The stream has brought a run."""
        if self._push.hears(stream, now):
            self.head_seq = max(self.head_seq, head_seq)
            self._push.buffer.add(run)

    def heard(self, stream: int, now: float) -> None:
        """The stream has given a sign of life."""
        self._push.hears(stream, now)

    def lost(self, stream: int, cause: FallCause, now: float) -> None:
        """The stream is over, or will not bring everything. The next read tells what is missing."""
        if self._push.hears(stream, now):
            self._fall(cause, now)

    def stop(self, reason: CloseReason, error: BaseException | None = None) -> None:
        """Let it end. Of several reasons the first counts."""
        if self.state is not FollowState.CLOSED:
            # Whoever closes also ends the stream.
            self._outbox.clear()
            self._push.end()
            self._move(FollowState.CLOSED)
            self._outbox.append(Close(reason, error))

    # ---- actions -------------------------------------------------------------------------------

    def next(self, now: float) -> Action:
        """What to do now. Nothing may be asked after `Close`."""
        while True:
            if self._outbox:
                return self._outbox.popleft()
            action = self._step(now)
            if action is not None:
                return action

    def _step(self, now: float) -> Action | None:
        """The present state's next action; None when there is another state now."""
        match self.state:
            case FollowState.PULL:
                return self._pull(now)
            case FollowState.SUBSCRIBE:
                return self._wait_for_stream(now)
            case FollowState.LAST_PULL:
                return self._last_pull(now)
            case FollowState.DRAIN | FollowState.LIVE:
                return self._live(now)
            case FollowState.POLL:
                return self._poll(now)
        raise RuntimeError("it is closed, and was told so")

    def _pull(self, now: float) -> Action:
        if not self._is_near:
            return self._read(now)
        self._is_near = False
        self._move(FollowState.SUBSCRIBE)
        return OpenStream(self._push.begin(now))

    def _last_pull(self, now: float) -> Action | None:
        if self._needs_last_pull():
            return self._read(now)
        first = self._push.buffer.first
        if first is not None and not self._joins(first):
            self._fall("overflow", now)
        else:
            self._move(FollowState.DRAIN)
            self._news.caught_up(self.cursor)
        return None

    def _live(self, now: float) -> Action | None:
        run = self._push.buffer.first
        if run is None:
            if self.state is FollowState.DRAIN:
                self._move(FollowState.LIVE)
            return self._wait_for_stream(now)
        if self._joins(run):
            return self._deliver(self._push.buffer.take())
        self._fall("overflow", now)
        return None

    def _poll(self, now: float) -> Action | None:
        if now < self._falls.poll_until:
            left = min(_LONG_POLL, self._falls.poll_until - now)
            # First what is there. Nothing being there is news, too.
            return self._read(now, left if self.is_caught_up else 0.0)
        self._move(FollowState.PULL)
        return None

    def _read(self, now: float, wait: float = 0.0) -> Action:
        due = self._attempts.due
        if now < due:
            return Wait(due)
        cursor = self.cursor
        if cursor is not None and self._began_ahead:
            # To the broker a number that it has not given yet is one of another life.
            cursor = Checkpoint(min(cursor.seq, self.head_seq), cursor.epoch)
        return Read(cursor, wait)

    def _wait_for_stream(self, now: float) -> Action | None:
        if now < self._push.silent_at:
            return Wait(self._push.silent_at)
        self._fall("silence", now)
        return None

    # ---- rules ---------------------------------------------------------------------------------

    @property
    def _seq(self) -> int:
        return 0 if self.cursor is None else self.cursor.seq

    def _needs_last_pull(self) -> bool:
        return self._seq < self._push.begins_after

    def _joins(self, run: Run) -> bool:
        """Whether nothing is missing between what was handed out and `run`."""
        return run.from_seq <= self._seq

    def _unseen(self, run: Run) -> list[Record]:
        """The records that were not handed out yet."""
        seen = self._seq
        return [record for record in run.records if record.seq > seen]

    def _is_another_life(self, epoch: int) -> bool:
        """Whether the topic was deleted and made again since the cursor's number was learned."""
        return self.cursor is not None and self.cursor.epoch not in (0, epoch)

    def _is_ahead(self, answer: Answer) -> bool:
        """Whether the user's number is one that the log has not come to yet.

        The broker takes it for one of an earlier life, but of which life it is nobody has said.
        """
        if self.cursor is None or self.cursor.epoch:
            return False
        return answer.gap is not None and answer.gap.reason is GapReason.RECREATED

    def _deliver(self, run: Run) -> Deliver:
        records = self._unseen(run)
        epoch = 0 if self.cursor is None else self.cursor.epoch
        # A start beyond the head stays where it is until the log has come so far.
        self.cursor = Checkpoint(max(self._seq, run.to_seq), epoch)
        return Deliver(records, self.cursor)

    def _judge_poll(self) -> None:
        """Without a stream it is as a whole buffer of records that one is behind."""
        if self._is_near:
            self._news.caught_up(self.cursor)
        elif self.head_seq - self._seq >= self._rules.live_buffer:
            self._news.fell_behind(self.cursor, "overflow")

    def _fall(self, cause: FallCause, now: float) -> None:
        """Leave the stream, and what it has brought, for pulling."""
        if self._push.end():
            self._outbox.append(LeaveStream(self._push.number))
        self._news.fell_behind(self.cursor, cause)
        self._is_near = False
        self._falls.add(now)
        self._move(FollowState.POLL if now < self._falls.poll_until else FollowState.PULL)

    def _move(self, to: FollowState) -> None:
        if not may_follow(self.state, to):
            raise RuntimeError(f"{to} cannot follow {self.state}")
        self.state = to
