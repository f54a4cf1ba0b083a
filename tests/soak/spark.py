"""`make soak`, its second part: a Spark ingestion whose processes are killed repeatedly.

    python -m tests.soak.spark --messages 50000 --kills 12 --seed 7

A query writes a subscription to a sink that is idempotent by batch id, while its driver, its JVM
and its source worker are killed at random times, it is stopped in the middle of a batch, its sink
raises, the broker restarts, leases expire, and messages are delivered twice. At every kill of a
driver, all acknowledged messages must be committed. At the end every message must be in exactly one
batch and acknowledged. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.subscriber.spark.chaos import Chaos

# The batches that are published for each kill. Some are completed in between.
BATCHES_A_KILL = 8


def run(chaos: Chaos, kills: int, messages: int, dice: random.Random) -> dict[int, list[str]]:
    """Run all failures, and return the final messages of each batch."""
    killing = [chaos.kill_driver, chaos.kill_jvm, chaos.kill_source_worker]
    others = [
        *(chaos.stop_query, chaos.fail_in_sink, chaos.restart_broker),
        *(chaos.expire_leases, chaos.deliver_twice),
    ]
    for number in range(kills):
        chaos.publish(messages // kills)
        chaos.start()
        chaos.progress(1, more=1.0)
        others[number % len(others)]()
        chaos.progress(1, more=1.0)
        # Each kind in turn first, then randomly.
        killing[number % 3 if number < 6 else dice.randrange(3)]()
    chaos.publish(messages - kills * (messages // kills))
    batches = chaos.finish()
    assert chaos.kills == kills, f"{chaos.kills} processes were killed, and not {kills}"
    assert set(batches) == set(range(len(batches))), "the numbers of batches have gaps"
    return batches


def main() -> None:
    parser = argparse.ArgumentParser(description="a Spark ingestion that is killed again and again")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    console = Console()
    console.print(f"seed {seed}")
    begin = time.monotonic()
    dice = random.Random(seed)
    per_batch = max(1, arguments.messages // arguments.kills // BATCHES_A_KILL)
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(Path(folder, "ingestion"), per_batch=per_batch, dice=dice, tell=console.print)
        try:
            batches = run(chaos, arguments.kills, arguments.messages, dice)
        except AssertionError as error:
            console.print(f"[red]failed[/red]: {error}", markup=True)
            sys.exit(1)
        finally:
            chaos.close()
    view = Table(title=f"what was done in {time.monotonic() - begin:.0f} s")
    view.add_column("trouble")
    view.add_column("times", justify="right")
    for trouble, times in sorted(chaos.troubles.items()):
        view.add_row(trouble, str(times))
    console.print(view)
    console.print(
        f"[green]{arguments.messages:,} messages in {len(batches)} batches: none lost, none twice"
    )


if __name__ == "__main__":
    main()
