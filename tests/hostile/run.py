"""`make hostile`: the SDK for ten minutes on a server whose answers are wrong in every form.

    python -m tests.hostile.run --seconds 600 --seed 7

Each round starts a hostile server (server.py) behind a hostile network (network.py), and clients
that subscribe, subscribe in lists, fetch and publish. At the end of the round the server is calm,
the clients are closed, and every future must have told the truth (checker.py): a success took
effect, a failure did not unless it says so, and none is unresolved. No acknowledgement is lost, no
key is out of order, and no message comes again after a confirmed acknowledgement. Exits with 1
otherwise. `--plant NAME` plants a fault, which the run must find.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.event_log import Recorder, Violation

from .checker import judge
from .clients import Fetcher, Publisher, Subscriber
from .network import Network
from .server import HostileServer
from .truth import Backlog

PLANTS = ("lost-ack", "false-success", "reordered-key", "acked-again", "unresolved-future")
# Accounts of each kind of violation that are printed.
MOST_ACCOUNTS = 3


class Kind(NamedTuple):
    ordered: bool
    exactly_once: bool
    in_lists: bool

    @property
    def name(self) -> str:
        order = "ordered" if self.ordered else "unkeyed"
        once = "-once" if self.exactly_once else ""
        return f"{order}{once}{'-lists' if self.in_lists else ''}"


KINDS = tuple(Kind(o, e, b) for o in (False, True) for e in (False, True) for b in (False, True))


class Round(NamedTuple):
    """The result of one round."""

    counts: dict[str, Counter[str]]
    violations: list[Violation]
    done: Counter[str]
    begin: float


def play(seconds: float, seed: int, plant: str = "") -> Round:
    """Play one round: trouble for some seconds, then calm until every request has its answer."""
    dice = random.Random(seed)
    recorder = Recorder("server")
    server = HostileServer(dice, recorder, plant)
    network = Network(server.port, dice)
    subscriptions = {f"projects/hostile/subscriptions/{kind.name}": kind for kind in KINDS}
    for name, kind in subscriptions.items():
        keys = [f"{kind.name}-{number}" for number in range(8)] if kind.ordered else [""]
        server.backlogs[name] = Backlog(
            name, keys, exactly_once=kind.exactly_once, recorder=recorder
        )
    fetched = "projects/hostile/subscriptions/fetched"
    server.backlogs[fetched] = Backlog(fetched, [""], exactly_once=False, recorder=recorder)
    server.start()
    begin = time.monotonic()
    clients: list[Subscriber | Fetcher | Publisher] = [
        Subscriber(network.endpoint, name, recorder, dice, in_lists=kind.in_lists, plant=plant)
        for name, kind in subscriptions.items()
    ]
    clients.append(Fetcher(network.endpoint, fetched, recorder, dice, plant))
    for is_async in (False, True):
        name = "publisher-async" if is_async else "publisher"
        clients.append(Publisher(network.endpoint, name, recorder, is_async=is_async, plant=plant))
    while time.monotonic() < begin + seconds:
        time.sleep(dice.uniform(0.2, 1.0))
        if dice.random() < 0.3:
            network.step()
        for client in clients:
            client.renew()
    server.calm()
    network.calm()
    with ThreadPoolExecutor(len(clients)) as closing:
        for _ in closing.map(lambda client: client.close(), clients):
            pass
    verdict = judge(sorted(recorder.events, key=lambda event: event.at))
    network.stop()
    server.stop()
    return Round(verdict.counts, verdict.violations, server.done + network.done, begin)


def main() -> int:
    parser = argparse.ArgumentParser(description="ten minutes on a server that misbehaves")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--round", type=float, default=30.0, help="seconds of trouble in a round")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--plant", choices=PLANTS, default="", help="plant a fault")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    # The failures are caused on purpose.
    logging.getLogger("pullstream").setLevel(logging.CRITICAL + 1)
    logging.getLogger("grpc").setLevel(logging.CRITICAL + 1)
    counts: dict[str, Counter[str]] = {}
    done: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    begin = time.monotonic()
    number = 0
    while time.monotonic() - begin < options.seconds:
        played = play(options.round, seed + number, options.plant)
        number += 1
        for kind, results in played.counts.items():
            counts[kind] = counts.get(kind, Counter()) + results
        done += played.done
        for violation in played.violations:
            kinds[violation.kind] += 1
            if kinds[violation.kind] <= MOST_ACCOUNTS:
                print(violation.account(played.begin), flush=True)
        futures = sum(results.total() for results in counts.values())
        print(
            f"{time.monotonic() - begin:5.0f} s  round {number}: {futures:,} futures, "
            f"{done.total():,} misbehaviours, {kinds.total()} violations",
            flush=True,
        )
    print(f"\n{'request':10} {'truthful':>10} {'false':>8} {'unresolved':>11}")
    for kind, results in sorted(counts.items()):
        row = (results[name] for name in ("truthful", "false", "unresolved"))
        print(f"{kind:10} {{:>10,}} {{:>8,}} {{:>11,}}".format(*row))
    print("\n" + ", ".join(f"{what} {times}" for what, times in sorted(done.items())))
    if kinds:
        found = ", ".join(f"{times} {kind}" for kind, times in kinds.items())
        print(f"failed: {found}; repeat with --seed {seed}")
        return 1
    print("every future has told the truth")
    return 0


if __name__ == "__main__":
    sys.exit(main())
