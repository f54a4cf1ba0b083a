"""Keep totals of a topic's orders in a database, run after run, each order counted exactly once.

    PUBSUB_EMULATOR_HOST=localhost:8085 python samples/build_totals.py \\
        projects/PROJECT/topics/TOPIC totals.db

The position in the topic is kept in the database of the totals, by the same transaction: whenever
the program is killed, both are there or neither. It stops when there are no more orders for now.
"""

import sqlite3
import sys
import threading
from contextlib import closing

from subscriber import SubscriberClient
from subscriber.follow import CaughtUp, Checkpoint, Event, Record

topic, path = sys.argv[1:]
caught_up = threading.Event()


class Totals:
    """The totals, and the position after the last order in them: a CheckpointStore.

    The follower's thread calls all of it, the handler included.
    """

    def open(self, topic: str) -> Checkpoint | None:
        self.database = sqlite3.connect(path)
        self.database.executescript(
            "CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, cents INTEGER);"
            "CREATE TABLE IF NOT EXISTS position (seq INTEGER, epoch TEXT)"
        )
        row = self.database.execute("SELECT seq, epoch FROM position").fetchone()
        return None if row is None else Checkpoint(row[0], int(row[1]))

    def add(self, order: Record) -> None:
        values = (order.attributes["customer"], int(order.data))
        self.database.execute(
            "INSERT INTO totals VALUES (?, ?)"
            " ON CONFLICT (customer) DO UPDATE SET cents = cents + excluded.cents",
            values,
        )

    def save(self, checkpoint: Checkpoint) -> None:
        self.database.execute("DELETE FROM position")
        values = (checkpoint.seq, str(checkpoint.epoch))
        self.database.execute("INSERT INTO position VALUES (?, ?)", values)
        # With the totals that were added since the last time.
        self.database.commit()

    def close(self) -> None:
        self.database.close()


def tell(event: Event) -> None:
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
