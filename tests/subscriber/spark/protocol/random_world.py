"""Random interleavings of the parties of a world, with crashes, sleepers and faults."""

from __future__ import annotations

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.storage import Create
from tests.subscriber.spark.protocol.world import (
    DAY,
    LEASE,
    WINDOW,
    Checkpoint,
    Lost,
    Party,
    World,
)

# Files of a folder in which everything is finished.
FEW_FILES = 30


class RandomWorld(World):
    """A world in which anything may happen before any step of any party."""

    def __init__(self, seed: int, acknowledge: Acknowledge, ticks: int = 250) -> None:
        super().__init__(seed, acknowledge)
        self._log = Checkpoint()
        self._ticks = ticks
        self._jumps = self.rng.random() < 0.1
        self.has_jumped = False
        self._has_lost = False

    def live(self) -> None:
        """Live a life of troubles, then a quiet one in which everything must come to an end."""
        self.faults, self.again = 0.05, 0.01
        self.server.publish(5)
        for _ in range(self._ticks):
            self._trouble()
            self._tick()
        self.faults = self.again = 0.0
        self._settle()
        for _ in range(8):
            # Everything becomes old enough to be deleted, if a coordinator sees it.
            self.leap(2 * DAY)
            for party in self.parties:
                party.wakes_at = 0.0
            self._settle()
            if self.has_jumped or len(self.files()) < FEW_FILES:
                break
        else:
            raise AssertionError(f"too many files: {self.files()}")
        self.check_end()

    def _settle(self) -> None:
        """Let everything come to an end; new messages must be acknowledged."""
        self.server.publish(3)
        new = self.server.published[-3:]
        for tick in range(6000):
            self._tick(0.3)
            if tick > 150 and tick % 20 == 0 and self.server.is_finished():
                break
        assert self.server.acked.keys() >= set(new), f"not acknowledged: {self.log[-5:]}"

    def _tick(self, seconds: float = 1.0) -> None:
        awake = [party for party in self.parties if party.wakes_at <= self.now]
        for kind, wanted in (("receiver", 2), ("engine", 1)):
            if sum(party.kind == kind for party in awake) < wanted:
                awake.append(self._new(kind))
        self.now += self.rng.expovariate(1.0) * seconds
        party = self.rng.choice(awake)
        if party in self.parties:
            self.step(party)

    def _new(self, kind: str) -> Party:
        if kind == "receiver":
            return self.add_receiver()
        if "another query has taken it over" in "".join(self.log[-1:]):
            # Two engines began the checkpoint at the same time, and the older one came later to the
            # log. The user starts with an empty checkpoint. The table knows its batches.
            self._log = Checkpoint(batches=self._log.batches)
            self.checkpoints = [self._log]
        return self.add_engine(self._log)

    def _trouble(self) -> None:
        rng = self.rng
        chance = rng.random()
        party = rng.choice(self.parties) if self.parties else None
        if chance < 0.02:
            self.server.publish(rng.randint(1, 6))
        elif party is None or chance > 0.1:
            return
        elif chance < 0.045:
            self.kill(party)
            if party.kind == "engine":
                self._lose_logs()
        elif chance < 0.07:
            party.wakes_at = self.now + rng.choice([5, 2 * LEASE, 700, 3000, 2 * DAY])
        elif chance < 0.08:
            self.leap(rng.choice([5, 2 * LEASE, 700, 3000]))
        elif chance < 0.085:
            for sleeper in self.parties:
                sleeper.wakes_at = 0.0
        elif chance < 0.09 and self._jumps:
            self.has_jumped = True
            self.store.skew += rng.choice([-2, 2]) * DAY

    def _lose_logs(self) -> None:
        """After a power failure, the engine may lack its last commit, or its last batch as well.

        If it loses more, its offset is refused.
        """
        log = self._log
        last = max(log.offsets, default=0)
        is_alone = not any(party.kind == "engine" for party in self.parties)
        if is_alone and not self._has_lost and self.rng.random() < 0.2:
            self._has_lost = True
            log.commits.discard(last)
            if self.rng.random() < 0.3:
                log.offsets.pop(last, None)


class StepWorld(RandomWorld):
    """A world with one trouble: after a certain step of the receivers or of the engines.

    Args:
        kind: "receiver" or "engine".
        place: Number of the step.
        trouble: "crash"; "sleep", for longer than a lease; "long sleep", for longer than the
            window of known ids; or, for a put: "no put", "lost answer" or "late put".
    """

    def __init__(self, acknowledge: Acknowledge, kind: str, place: int, trouble: str) -> None:
        super().__init__(place, acknowledge, ticks=200)
        self._kind = kind
        self._left = place
        self._what = trouble
        self.is_over = False

    def step(self, party: Party) -> None:
        self._left -= party.kind == self._kind
        if self._left > 0 or self.is_over or party.kind != self._kind:
            super().step(party)
            return
        sleeps = {"sleep": 2 * LEASE, "long sleep": 2 * WINDOW}
        if self._what in sleeps or self._what == "crash":
            self.is_over = True
            super().step(party)
            if self._what == "crash" and party in self.parties:
                self.kill(party)
            party.wakes_at = self.now + sleeps.get(self._what, 0.0)
        elif isinstance(party.point, Create):
            self.is_over = True
            path, data = party.point
            if self._what == "lost answer":
                self.store.create(path, data)
            elif self._what == "late put":
                self.store.late.append((self.now + 100, path, data))
            self._resume(party, None, Lost(path))
        else:
            super().step(party)

    def _trouble(self) -> None:
        self.faults = self.again = 0.0
        if self.rng.random() < 0.02:
            self.server.publish(2)
