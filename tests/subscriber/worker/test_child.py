"""A child whose parent has died, or that cannot end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.worker.control_pipe import ControlPipe
from pullstream.worker.job import Job
from pullstream_emulator import Emulator
from tests.subscriber.streaming.fakes import eventually
from tests.subscriber.worker.program import python_path

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/billing"


class Parent:
    """Has a parent's pipes to its child, and can close them."""

    def __init__(self, folder: Path, app: str, *, drain_timeout: float) -> None:
        (folder / "app.py").write_text(app)
        self.control_pipe, child_end = ControlPipe.pair()
        job = Job("app:handle", SUBSCRIPTION, {}, 1, 10, None, 0.1, drain_timeout, relayed=True)
        self.child = subprocess.Popen(
            [sys.executable, "-m", "pullstream.worker", str(child_end.fileno())],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": python_path()},
            pass_fds=(child_end.fileno(),),
            stdout=subprocess.PIPE,
        )
        child_end.close()
        self.control_pipe.send_job(job.to_json())

    def wait_for(self, text: bytes) -> None:
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == text

    def die(self) -> None:
        assert self.child.stdout is not None
        self.child.stdout.close()
        self.control_pipe.close()


@pytest.fixture(autouse=True)
def message(pubsub_emulator: Emulator) -> None:
    """Publish a message that waits."""
    with TopicAdminClient() as topics, SubscriberClient() as client:
        topics.create_topic(name=TOPIC)
        client.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC})
        topics.publish(TOPIC, [{"data": b"a"}])


@pytest.mark.skipif(sys.platform != "linux", reason="looks at a process as only Linux lets it")
def test_a_worker_callback_that_prints_finishes_after_the_parent_process_has_died(
    tmp_path: Path, pubsub_emulator: Emulator
) -> None:
    """The output of the callback is lost with the pipe, but its message is not."""
    os.mkfifo(tmp_path / "gate")
    parent = Parent(
        tmp_path,
        "def handle(message):\n"
        "    print('begun', flush=True)\n"
        "    open('gate').close()\n"
        "    print('done', flush=True)\n"
        "    message.ack()\n",
        drain_timeout=20,
    )
    parent.wait_for(b"begun\n")
    parent.die()
    eventually(lambda: os.readlink(f"/proc/{parent.child.pid}/fd/1") == os.devnull)
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    assert parent.child.wait() == 0
    os.close(gate)
    assert pubsub_emulator.backlog(SUBSCRIPTION) == 0


def test_a_worker_process_ends_even_if_the_callbacks_module_has_left_threads_running(
    tmp_path: Path,
) -> None:
    """A thread that is not a daemon would keep the child for ever without a parent to kill it."""
    parent = Parent(
        tmp_path,
        "import threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "def handle(message):\n"
        "    message.ack()\n"
        "    print('begun', flush=True)\n",
        drain_timeout=0.5,
    )
    parent.wait_for(b"begun\n")
    parent.die()
    assert parent.child.wait() == 1
