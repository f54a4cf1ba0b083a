r"""Keep totals of a topic's orders in a database over several runs; count each order exactly once.

    PUBSUB_EMULATOR_HOST=localhost:8085 python samples/build_totals.py \
        projects/PROJECT/topics/TOPIC totals.db

The database also stores the position in the topic, in the same transaction as the totals. Whenever
the program is killed, it has stored both or neither. It stops when no more orders are available.
"""

import sqlite3
import sys
import threading
from contextlib import closing

from pullstream import SubscriberClient
from pullstream.follow import CaughtUp, Checkpoint, Event, Record

if len(sys.argv) != 3:
    sys.exit(__doc__)
topic, path = sys.argv[1:]
caught_up = threading.Event()


class Totals:
    """The totals, and the position after the last order counted in them: a CheckpointStore.

    The follower's thread calls all methods, including the handler.
    """

    def open(self, topic: str) -> Checkpoint | None:
        """Open the database, and return the saved position; None at the first run."""
        self.database = sqlite3.connect(path)
        self.database.executescript(
            "CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, cents INTEGER);"
            "CREATE TABLE IF NOT EXISTS position (seq INTEGER, epoch TEXT)"
        )
        row = self.database.execute("SELECT seq, epoch FROM position").fetchone()
        return None if row is None else Checkpoint(row[0], int(row[1]))

    def add(self, order: Record) -> None:
        """Add an order to its customer's total; `save` commits it."""
        values = (order.attributes["customer"], int(order.data))
        self.database.execute(
            "INSERT INTO totals VALUES (?, ?)"
            " ON CONFLICT (customer) DO UPDATE SET cents = cents + excluded.cents",
            values,
        )

    def save(self, checkpoint: Checkpoint) -> None:
        """Store the position, and commit it with the totals."""
        self.database.execute("DELETE FROM position")
        values = (checkpoint.seq, str(checkpoint.epoch))
        self.database.execute("INSERT INTO position VALUES (?, ?)", values)
        # Commits the position together with the totals added since the last commit.
        self.database.commit()

    def close(self) -> None:
        """Close the database; totals without a saved position are lost and counted again."""
        self.database.close()


def tell(event: Event) -> None:
    """Set `caught_up` when no more orders are available."""
    if isinstance(event, CaughtUp):
        caught_up.set()


totals = Totals()
with SubscriberClient() as client:
    follower = client.follow(topic, totals.add, checkpoint=totals, on_event=tell)
    follower.add_done_callback(lambda _: caught_up.set())
    caught_up.wait()
    follower.close()
    follower.result()

with closing(sqlite3.connect(path)) as database:
    for customer, cents in database.execute("SELECT * FROM totals ORDER BY customer"):
        print(f"{customer}: {cents}")
print(f"{follower.statistics().handled} orders in this run")
