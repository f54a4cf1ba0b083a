"""Programs that end with fetched messages, and a fetch after a fork."""

from __future__ import annotations

import pytest

from pullstream import SubscriberClient
from pullstream.rpc.rpcs import Rpcs
from pullstream_emulator import Emulator
from tests.subscriber.fetching import NAME, TOPIC
from tests.subscriber.program import end_of, start_program

TIMEOUT = 20.0

PROLOGUE = f"""
import os, sys, threading
from pullstream import SubscriberClient, SubscriberClosed

name = {NAME!r}
client = SubscriberClient(endpoint=sys.argv[1])
"""

# One thread works on a message in a block, another holds one and waits for more.
ENDS = """
at_work = threading.Event()

def work():
    with client.fetch(name):
        at_work.set()
        threading.Event().wait()

def wait_for_more():
    try:
        client.fetch(name, 2, timeout=None, min_messages=2)
    except SubscriberClosed:
        pass

threading.Thread(target=work, daemon=True).start()
at_work.wait()
threading.Thread(target=wait_for_more, daemon=True).start()
while client.subscription_state(name).num_waiting != 1:
    pass
print(client.subscription_state(name).num_ack_pending)
"""

# Python 3.12 and gRPC warn of forks. This test is about a fork in spite of that.
FORKS = """
import warnings

warnings.simplefilter("ignore")
(message,) = messages = client.fetch(name)
child = os.fork()
if child == 0:
    uses = [
        lambda: client.fetch(name),
        lambda: client.fetch(name, 2, min_messages=2),
        messages.ack,
        message.ack,
        messages.__enter__,
    ]
    for use in uses:
        try:
            use()
        except Exception as error:
            print(type(error).__name__, flush=True)
    client.close()
    os._exit(0)
os.waitpid(child, 0)
message.ack_with_response().result()
client.close()
"""


def run(program: str, broker: Emulator) -> tuple[str, str, int]:
    return end_of(start_program(PROLOGUE + program, broker.endpoint))


def test_fetched_messages_that_threads_still_hold_at_program_exit_are_nacked(
    broker: Emulator,
) -> None:
    """Both messages are free for others at once, and no call waits."""
    broker.publish(TOPIC, "a")
    broker.publish(TOPIC, "b")
    out, err, code = run(ENDS, broker)
    assert (out, err, code) == ("2\n", "", 0)
    with SubscriberClient(endpoint=broker.endpoint) as client:
        state = client.subscription_state(NAME)
        assert (state.num_ack_pending, state.num_pending, state.num_waiting) == (0, 2, 0)


def test_every_use_of_the_parents_fetch_client_in_a_forked_child_raises_an_error(
    broker: Emulator,
) -> None:
    """Nothing is lost silently in the child, and the parent continues."""
    broker.publish(TOPIC, "a")
    out, _, code = run(FORKS, broker)
    assert (out, code) == ("ForkedProcess\n" * 5, 0)
    assert broker.backlog(NAME) == 0


def test_acks_of_fetched_messages_are_sent_at_exit_even_if_grpc_can_start_no_thread(
    broker: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 refuses threads to a program that ends; gRPC needs one to answer later."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    for text in ("a", "b"):
        broker.publish(TOPIC, text)
    monkeypatch.setattr(Rpcs, "begin", refuse)
    with SubscriberClient(endpoint=broker.endpoint) as client:
        (message,) = client.fetch(NAME)
        message.ack_with_response().result(TIMEOUT)
        # The end of the client returns the message of an open block.
        client.fetch(NAME).__enter__()
    assert broker.backlog(NAME) == 1
    with SubscriberClient(endpoint=broker.endpoint) as client:
        state = client.subscription_state(NAME)
        assert (state.num_ack_pending, state.num_pending) == (0, 1)
