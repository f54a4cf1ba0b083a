"""`make soak`, its last part: an ingestion with receivers whose processes are killed repeatedly.

    python -m tests.soak.receivers --spool s3 --acknowledge stored --receivers outside --seed 7

`pullstream ingest` writes a subscription to a table. Three receivers run as tasks of Spark or as
programs, or one in the source's process. Driver, executors, workers, receivers and the broker
(class fsync) are killed at random, and receivers sleep longer than a lease. At the end every
message must be in the table once, as engines count that do not use our libraries. Exits with 1 if
the table is wrong.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console

from pullstream import SubscriberClient, TopicAdminClient

from .ingestion import Job, Place, kill
from .table_counts import counts

TOPIC = "projects/soak/topics/rows"
SUBSCRIPTION = "projects/soak/subscriptions/rows"
RECEIVERS = 3
LEASE = 10
# Messages in a request of the publisher.
PUBLISHED = 500
# Rows in a batch. A busy machine needs two seconds for a batch of any size, and the publisher sends
# 222 messages a second.
BATCH = 2_000
# Cores for receivers and a query.
LOCAL = f"local[{RECEIVERS + 1}]"
CLUSTER = f"local-cluster[1,{RECEIVERS + 1},1024]"


class Broker:
    """A broker with its data on the disk, in a process that can be killed."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self._port = one.getsockname()[1]
        self.endpoint = f"127.0.0.1:{self._port}"
        self._folder = folder
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pullstream_emulator", "--port", str(self._port)]
        command += ["--host", "127.0.0.1", "--durability", "fsync"]
        command += ["--data-dir", str(self._folder / "broker")]
        with (self._folder / "broker.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(600):
            # A broker that loads its data answers with an error.
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://{self.endpoint}/readyz", timeout=10),
            ):
                break
            time.sleep(0.1)
        return process

    def kill(self) -> None:
        """Kill the process, and start another one on the same data."""
        self.end()
        self._process = self._start()

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()


class Programs:
    """Processes of `pullstream receive`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command, self._log = command, log
        self._processes = [self._start() for _ in range(RECEIVERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log)

    def ensure(self) -> None:
        """Start others in place of processes that have ended."""
        for number, one in enumerate(self._processes):
            if one.poll() is not None:
                self._processes[number] = self._start()

    def kill(self, dice: random.Random) -> None:
        dice.choice(self._processes).kill()

    def pause(self, dice: random.Random) -> None:
        """Let a receiver sleep for longer than a lease."""
        sleeper = dice.choice(self._processes)
        sleeper.send_signal(signal.SIGSTOP)
        time.sleep(LEASE * 1.5)
        sleeper.send_signal(signal.SIGCONT)

    def end(self) -> None:
        for one in self._processes:
            one.terminate()
        for one in self._processes:
            one.wait(30)


@contextmanager
def spool_of(kind: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Provide the place of a spool, and the settings of its store."""
    if kind == "posix":
        yield str(folder / "spool"), {}
        return
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    key = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    url = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=url, region_name="us-east-1", **key).create_bucket(
        Bucket="lake"
    )
    settings = {"aws_endpoint": url, "aws_region": "us-east-1", "aws_allow_http": "true", **key}
    try:
        yield "s3://lake/spool", settings
    finally:
        server.stop()


class Soak:
    """One ingestion, and everything that is done to it."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, console: Console) -> None:
        self._arguments, self._folder, self._console = arguments, folder, console
        self._dice = random.Random(str(arguments.seed))
        self._kills: Counter[str] = Counter()
        self._published = 0
        # No message is under way when the broker is killed: a repeated one would have another id.
        self._publishing = threading.Lock()
        self._place = Place(folder, arguments.format, None)

    def run(self) -> list[str]:
        """Run everything, and return the faults."""
        broker = Broker(self._folder)
        try:
            with (
                TopicAdminClient(endpoint=broker.endpoint) as topics,
                SubscriberClient(endpoint=broker.endpoint) as client,
            ):
                topics.create_topic(name=TOPIC)
                client.create_subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=10)
            with spool_of(self._arguments.spool, self._folder) as (spool, storage):
                faults = self._run(broker, spool, storage)
        finally:
            broker.end()
        self._console.print(f"killed: {dict(self._kills)}; {self._published:,} messages")
        return faults + list(self._differences())

    def _run(self, broker: Broker, spool: str, storage: dict[str, str]) -> list[str]:
        kind, acknowledge = self._arguments.receivers, self._arguments.acknowledge
        job = Job(self._place, broker.endpoint, SUBSCRIPTION, upserts=False, batch_rows=BATCH)
        of_store = [f for one in storage.items() for f in ("--storage", "=".join(one))]
        options = ["--spool", spool, *of_store, "--option", f"acknowledge={acknowledge}"]
        programs = None
        if kind == "spark":
            options += ["--receivers", str(RECEIVERS)]
        elif kind == "outside":
            options += ["--option", "receivers=outside"]
            receive = [
                sys.executable,
                "-m",
                "pullstream",
                "receive",
                "--subscription",
                SUBSCRIPTION,
            ]
            receive += ["--endpoint", broker.endpoint, "--spool", spool, *of_store]
            receive += ["--acknowledge", acknowledge, "--receivers", str(RECEIVERS)]
            receive += ["--option", f"leaseSeconds={LEASE}", "--option", "lingerMs=300"]
            programs = Programs(receive, self._folder / "receivers.log")

        def start() -> subprocess.Popen[bytes]:
            master = CLUSTER if self._dice.random() < 1 / 2 else LOCAL
            return job.start("--master", master, *options)

        process = start()
        ended = threading.Event()
        publisher = threading.Thread(target=self._publish, args=(broker, ended), daemon=True)
        publisher.start()
        end = time.monotonic() + self._arguments.seconds
        try:
            while time.monotonic() < end:
                # Spark starts within 5 to 20 s. A driver is killed before or after its first batch.
                time.sleep(self._dice.uniform(5, 45))
                process = self._harm(process, start, broker, programs)
            ended.set()
            publisher.join()
            # The segments of killed receivers come first, and no living receiver acknowledges them.
            left, deadline = self._backlog(broker), time.monotonic() + 1_200
            while left and time.monotonic() < deadline:
                time.sleep(2)
                left = self._backlog(broker)
                if process.poll() is not None:
                    process = start()
                if programs is not None:
                    programs.ensure()
            process.send_signal(signal.SIGTERM)
            process.wait(120)
            if programs is not None:
                programs.end()
            # The spool may have more than the table, above all with `stored`.
            process = job.start("--master", LOCAL, *options, "--available-now")
            code = process.wait(1_800)
        finally:
            process.kill()
            if programs is not None:
                programs.end()
        faults = [f"{left:,} messages are not acknowledged"] if left else []
        if code:
            faults.append(f"the last run has exit code {code}: {job.tail()[-1000:]}")
        return faults

    def _harm(
        self,
        process: subprocess.Popen[bytes],
        start: object,
        broker: Broker,
        programs: Programs | None,
    ) -> subprocess.Popen[bytes]:
        kinds = ["driver", "executor", "worker", "broker", "JVM"]
        if programs is not None:
            kinds += ["receiver", "receiver", "pause"]
        kind = self._dice.choice(kinds)
        if kind == "broker":
            with self._publishing:
                broker.kill()
        elif programs is not None and kind == "receiver":
            programs.kill(self._dice)
        elif programs is not None and kind == "pause":
            programs.pause(self._dice)
        elif not kill(process, kind):
            kind = "driver"
            kill(process, kind)
        self._kills[kind] += 1
        self._console.print(f"{kind}; {self._published:,} published", markup=False)
        if programs is not None:
            programs.ensure()
        if kind in ("driver", "JVM"):
            process.wait(60)
        if process.poll() is not None:
            assert callable(start)
            process = start()
        return process

    def _publish(self, broker: Broker, ended: threading.Event) -> None:
        every = self._arguments.seconds * PUBLISHED / self._arguments.messages
        with TopicAdminClient(endpoint=broker.endpoint) as topics:
            while self._published < self._arguments.messages:
                # After the end, the publisher sends the rest at once.
                ended.wait(every)
                with self._publishing:
                    rows = [
                        {"id": id, "country": ("DE", "US", None)[id % 3], "key": id % 7}
                        for id in range(self._published, self._published + PUBLISHED)
                    ]
                    topics.publish(TOPIC, [{"data": json.dumps(row).encode()} for row in rows])
                    self._published += PUBLISHED

    def _backlog(self, broker: Broker) -> int:
        page = f"http://{broker.endpoint}/v0/status?project=soak"
        with urllib.request.urlopen(page, timeout=30) as answer:
            (one,) = json.load(answer)["subscriptions"]
        return int(one["backlog"])

    def _differences(self) -> Iterator[str]:
        for count in counts(self._place):
            if count.ids is None:
                self._console.print(f"{count.engine} was skipped: {count.why}", markup=False)
                continue
            found = Counter(count.ids)
            missing = set(range(self._published)) - found.keys()
            twice = [id for id, times in found.items() if times > 1]
            self._console.print(f"{count.engine}: {len(count.ids):,} rows, {len(found):,} ids")
            for what, ids in (("missing", sorted(missing)), ("twice", sorted(twice))):
                if ids:
                    yield f"{count.engine}: {len(ids):,} {what}, such as {ids[:10]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="receivers that are killed again and again")
    parser.add_argument("--spool", choices=("posix", "s3"), default="posix")
    parser.add_argument("--format", choices=("parquet", "delta", "iceberg"), default="parquet")
    parser.add_argument("--acknowledge", choices=("committed", "stored"), default="committed")
    parser.add_argument("--receivers", choices=("embedded", "spark", "outside"), default="spark")
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.randrange(10**6)
    console = Console(width=180)
    case = (arguments.spool, arguments.format, arguments.acknowledge, arguments.receivers)
    console.print(f"seed {arguments.seed}: {', '.join(case)}", markup=False)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        faults = Soak(arguments, Path(folder), console).run()
    for fault in faults:
        console.print(fault, markup=False)
    console.print("wrong" if faults else "every message once")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
