"""Random failures during the ingestion of a subscription, with checks after each step."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pullstream_emulator import Emulator
from pullstream_emulator.history import DEFAULT_LIMIT

from .ingester import Ingester
from .stage import SUBSCRIPTION, publish, subscribed

# The seconds that the query may take to make progress on a busy machine.
TIMEOUT = 180.0


class Chaos:
    """A broker, a driver, and failures of both. `troubles` counts the failures by name.

    Args:
        dice: The only source of randomness.
        tell: Called with a line about each failure.
    """

    def __init__(
        self,
        folder: Path,
        *,
        per_batch: int,
        dice: random.Random,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._dice = dice
        self._tell = tell
        self._broker = Emulator(history=100 * DEFAULT_LIMIT).start()
        subscribed(self._broker)
        self._ids: list[str] = []
        self._ingester = Ingester(folder, SUBSCRIPTION, self._broker.endpoint, per_batch)
        self.troubles: Counter[str] = Counter()

    def publish(self, count: int) -> None:
        self._ids += publish(self._broker, count)

    # ---- failures ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the driver, unless it runs."""
        if not self._ingester.runs:
            self._ingester.start()

    def kill_driver(self) -> None:
        """Kill the driver and check the acknowledgements. The driver is not started again."""
        self._trouble("kill -9 of the driver")
        self._ingester.kill_driver()
        self.judge_acks()

    def kill_jvm(self) -> None:
        """Kill the JVM in the same way."""
        self._trouble("kill -9 of the JVM")
        self._ingester.kill_jvm()
        self.judge_acks()

    def kill_source_worker(self) -> None:
        """Kill the source worker, or the driver if there is no worker.

        The driver restarts the query after the end of its source worker.
        """
        if self._ingester.kill_source_worker():
            self._trouble("kill -9 of the source worker")
        else:
            self.kill_driver()

    def stop_query(self) -> None:
        self._trouble("query.stop()")
        self._ingester.tell("stop")

    def fail_in_sink(self) -> None:
        self._trouble("the sink raises")
        self._ingester.tell("fail")

    def restart_broker(self) -> None:
        self._trouble("the broker restarts")
        old = self._broker
        old.stop()
        self._broker = Emulator(broker=old.broker, port=old.port).start()

    def expire_leases(self) -> None:
        """Let all leases end at once."""
        self._trouble("all leases expire")
        self._broker.clock.advance(700)

    def deliver_twice(self) -> None:
        self._trouble("messages are delivered twice")
        self._broker.faults.duplicate_deliveries(500)

    # ---- checks --------------------------------------------------------------------------------

    @property
    def kills(self) -> int:
        """Return the number of killed processes."""
        return sum(times for what, times in self.troubles.items() if what.startswith("kill -9"))

    def progress(self, batches: int, *, more: float = 0.0) -> None:
        """Wait until this many more batches are committed, and a random part of `more` seconds.

        Raises:
            AssertionError: The batches are not committed in time, or the driver has ended.
        """
        tick = threading.Event()
        goal = len(self._ingester.committed()) + batches
        for _ in range(int(TIMEOUT / 0.05)):
            if len(self._ingester.committed()) >= goal or not self._broker.backlog(SUBSCRIPTION):
                break
            assert self._ingester.runs, self._ingester.log()[-3000:]
            tick.wait(0.05)
        else:
            raise AssertionError(f"no batch in {TIMEOUT} s: {self._ingester.log()[-3000:]}")
        tick.wait(self._dice.uniform(0, more))

    def judge_acks(self) -> None:
        """Check that each acknowledged message is in a stored batch and in Spark's commit log."""
        acked = {event.message_id for event in self._broker.history.acks(SUBSCRIPTION)}
        batches = self._ingester.batches()
        safe = {one for batch in self._ingester.committed() for one in batches[batch]}
        assert acked <= safe, f"acknowledged and not committed: {sorted(acked - safe)[:10]}"

    def finish(self) -> dict[int, list[str]]:
        """Stop the driver, then drain and check the subscription. Return each batch's messages."""
        self._ingester.close()
        self.judge_acks()
        self._ingester.start(available_now=True)
        assert self._ingester.wait(TIMEOUT) == 0, self._ingester.log()[-3000:]
        batches = self._ingester.batches()
        counts = Counter(one for ids in batches.values() for one in ids)
        lost = set(self._ids) - counts.keys()
        twice = [one for one, count in counts.items() if count > 1]
        assert not lost, f"{len(lost)} of {len(self._ids)} are lost, such as {sorted(lost)[:10]}"
        assert not twice, f"{len(twice)} are there twice, such as {sorted(twice)[:10]}"
        assert self._broker.backlog(SUBSCRIPTION) == 0
        return batches

    def close(self) -> None:
        self._ingester.close()
        self._broker.stop()

    def _trouble(self, what: str) -> None:
        self.troubles[what] += 1
        self._tell(f"{what}; {self._broker.backlog(SUBSCRIPTION)} messages are left")
