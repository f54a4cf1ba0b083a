"""Two components that communicate without a broker: a worker reports the progress of its jobs.

    python samples/track_jobs.py

The worker is any gRPC server to which a ChannelPublisher is added. A client that wants to follow
some jobs listens to their keys, with one waiting call for any number of keys. A job that crashes is
reported as a failure of its key.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

from pullstream import ChannelMessage, ChannelPublisher, SubscriberClient

JOBS = ("copy", "index", "mail")


class Worker:
    """Runs jobs, and publishes their progress and results on the channel "jobs"."""

    def __init__(self) -> None:
        self._publisher = ChannelPublisher(channels={"jobs"})
        self._server = grpc.server(ThreadPoolExecutor())
        self._publisher.add_to(self._server)
        self.port = self._server.add_insecure_port("localhost:0")
        self._server.start()

    def work(self) -> None:
        """Publish the progress of two jobs, and the failure of a third one."""
        for percent in (50, 100):
            for job in ("copy", "index"):
                self._publisher.publish("jobs", job, f"{percent} %")
        self._publisher.publish_failure("jobs", "mail", "no such address")

    def stop(self) -> None:
        """End the waiting calls of listeners, and stop the server within a second."""
        self._publisher.close()
        self._server.stop(grace=1).wait()


def track(endpoint: str, start: threading.Event) -> None:
    """Print the messages of all jobs until each job has ended."""
    ended = threading.Semaphore(0)
    ready = threading.Semaphore(0)

    def progress(message: ChannelMessage) -> None:
        sys.stdout.write(f"{message.key}: {message.data.decode()}\n")
        if message.data == b"100 %":
            ended.release()

    def failed(error: Exception) -> None:
        sys.stdout.write(f"mail has failed: {error}\n")
        ended.release()

    with SubscriberClient(endpoint=endpoint) as client:
        listener = client.listen()
        for job in JOBS:
            listener.subscribe(
                "jobs",
                job,
                on_message=progress,
                on_failure=failed,
                on_done=lambda error: ready.release(),
            )
        # Messages published before a subscription is confirmed are lost, so wait for all of them.
        for _ in JOBS:
            ready.acquire(timeout=10)
        start.set()
        for _ in JOBS:
            ended.acquire(timeout=10)


def main() -> None:
    """Run a worker, and a tracker on another thread, until the tracker has seen all results."""
    worker, start = Worker(), threading.Event()
    tracker = threading.Thread(target=track, args=(f"localhost:{worker.port}", start))
    tracker.start()
    start.wait(10)
    worker.work()
    tracker.join()
    worker.stop()


if __name__ == "__main__":
    main()
