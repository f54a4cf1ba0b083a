"""Google's Python client as a subscriber that tests/clients/run.py controls.

    python receiver.py TASK

The programs in the folders go, java and node do the same with the other clients. TASK is JSON:

- `endpoint`, `project`, `subscription`: what to subscribe to. Each message's data is its number.
- `messages`: how many there are.
- `nack_every`: nack the first delivery of each number that this divides, and acknowledge the rest
  (0: acknowledge all).
- `hold`: "": answer each message in its callback, and wait for the result there. "inside": keep
  each message, in its callback, until the command `answer`. "later": the same, but the callback
  returns at once.
- `answer`: "ack" or "nack", for held messages. Those that come again get the other answer.
- `admin`: make administrative calls over HTTP instead (only Java).

Commands on standard input: `answer` answers the held messages, `stop` ends the subscriber as
gracefully as the client can. After the last command the input is closed. The program ends when the
client has stopped and all results are known.

Each event is a line on standard output, after the seconds since the start:

- `delivered NUMBER ACK_ID`
- `ack NUMBER`, `ack-result NUMBER OUTCOME`, `nack NUMBER`, `nack-result NUMBER OUTCOME`
- `dropped -1`: the client received a message that it does not show (only Go)
- `call NUMBER OUTCOME`: an administrative call has ended
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from google.api_core.exceptions import GoogleAPICallError
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError


class Receiver:
    """The callback. It is called by several threads."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._seen: set[int] = set()
        self._held: list[Any] = []
        self._results: list[Any] = []
        self._answered = threading.Event()

    def receive(self, message: Any) -> None:
        number = int(message.data)
        self._tell("delivered", number, message.ack_id)
        with self._lock:
            first = number not in self._seen
            self._seen.add(number)
        every, hold = self._task["nack_every"], self._task["hold"]
        if not hold:
            nack = first and every > 0 and number % every == 0
            self._settle(message, nack).exception()
        elif not first and self._task["answer"] == "nack":
            message.ack()
        elif not first:
            message.nack()
        elif hold == "inside":
            self._answered.wait()
            self._settle(message, self._task["answer"] == "nack").exception()
        else:
            with self._lock:
                self._held.append(message)

    def answer(self) -> None:
        """Answer all held messages."""
        self._answered.set()
        for message in self._held:
            self._settle(message, self._task["answer"] == "nack")

    def wait_for_results(self) -> None:
        for result in self._results:
            result.exception()

    def _settle(self, message: Any, nack: bool) -> Any:
        number, name = int(message.data), "nack" if nack else "ack"
        self._tell(name, number)
        result = message.nack_with_response() if nack else message.ack_with_response()
        result.add_done_callback(
            lambda result: self._tell(f"{name}-result", number, outcome(result.exception()))
        )
        self._results.append(result)
        return result

    def _tell(self, *words: object) -> None:
        line = " ".join(map(str, words))
        sys.stdout.write(f"{time.monotonic() - self._begin:.3f} {line}\n")
        sys.stdout.flush()


def outcome(error: BaseException | None) -> str:
    if isinstance(error, AcknowledgeError):
        return str(error.error_code.name)
    return "SUCCESS" if error is None else type(error).__name__


def main() -> None:
    task = json.loads(sys.argv[1])
    os.environ["PUBSUB_EMULATOR_HOST"] = task["endpoint"]
    client = pubsub_v1.SubscriberClient()
    path = client.subscription_path(task["project"], task["subscription"])
    receiver = Receiver(task)
    flow_control = pubsub_v1.types.FlowControl(
        **({"max_messages": 2 * task["messages"]} if task["hold"] else {})
    )
    future = client.subscribe(
        path, receiver.receive, flow_control=flow_control, await_callbacks_on_shutdown=True
    )
    for command in sys.stdin:
        if command.strip() == "answer":
            receiver.answer()
        else:
            future.cancel()
    try:
        future.result()
    except GoogleAPICallError as error:
        # The subscription was deleted.
        print(error, file=sys.stderr)
    receiver.wait_for_results()


if __name__ == "__main__":
    main()
