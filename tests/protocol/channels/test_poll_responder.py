"""Polls that wait on a `grpc.server` without using its threads."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from pullstream_protocol.channels import ChannelPublisher
from pullstream_protocol.channels.poll_responder import ParkedPoll
from pullstream_protocol.channels.session import Poll
from pullstream_protocol.channels.shared_core import SharedChannelCore
from pullstream_protocol.grpc_internals import can_park
from pullstream_protocol.messages import encoded_pb2 as encoded
from tests.contract.channel_fixtures import early_answers as early_answers
from tests.contract.channel_peers import BareSubscriber, data_of
from tests.contract.channel_servers import served
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

MANY = 50

# Prints its port, and then the number of waiting polls for each input line. It ends at the end of
# its input without closing anything.
FORGETFUL = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
from pullstream import ChannelPublisher

publisher = ChannelPublisher()
server = grpc.server(ThreadPoolExecutor())
publisher.add_to(server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
for line in sys.stdin:
    print(publisher.statistics().parked, flush=True)
"""


@contextmanager
def parked(publisher: ChannelPublisher, endpoint: str) -> Iterator[list[Any]]:
    """Run the block while MANY polls of subscribers to one key wait."""
    ones = [BareSubscriber(endpoint, str(number)) for number in range(MANY)]
    for one in ones:
        one.subscribe("c", "a")
    polls = [one.begin_poll() for one in ones]
    eventually(lambda: publisher.statistics().parked == MANY)
    yield polls
    for one in ones:
        one.close()


def parked_objects() -> int:
    return sum(type(each) is ParkedPoll for each in gc.get_objects())


class Interceptor(grpc.ServerInterceptor):
    """Changes the handler of Poll as a test requests, and passes the others on."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._change = change

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if not handler_call_details.method.endswith("/Poll"):
            return handler
        return grpc.unary_stream_rpc_method_handler(
            self._change(handler.unary_stream),
            handler.request_deserializer,
            handler.response_serializer,
        )


def test_the_installed_grpc_release_supports_channel_polls_that_wait_without_a_thread() -> None:
    """Without those parts polls work, but each takes a thread.

    Then grpc_internals needs a change.
    """
    seen: list[bool] = []

    def noting(behaviour: Any) -> Any:
        def poll(request: Any, context: grpc.ServicerContext) -> Any:
            seen.append(can_park(context))
            return behaviour(request, context)

        return poll

    publisher = ChannelPublisher()
    with served(publisher, interceptors=[Interceptor(noting)]) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", "a")
        publisher.publish("c", "a", "x")
        assert data_of(bare.poll()) == ["x"]
        bare.close()
    assert seen == [True]


def test_one_server_thread_serves_any_number_of_waiting_channel_polls() -> None:
    """The thread answers other calls in the meantime, and all polls when there is a message."""
    publisher = ChannelPublisher()
    with (
        served(publisher, threads=1, interceptors=[Interceptor(lambda poll: poll)]) as endpoint,
        parked(publisher, endpoint) as polls,
    ):
        assert not any(poll.done() for poll in polls)
        assert publisher.publish("c", "a", "x") == MANY
        assert [data_of(poll.result().items) for poll in polls] == [["x"]] * MANY
        assert publisher.statistics().parked == 0


def test_the_caller_of_a_channel_poll_that_waited_without_a_thread_gets_a_normal_answer(
    early_answers: float,
) -> None:
    """The answer has metadata and a status, as any client expects of this call."""
    publisher = ChannelPublisher()
    with served(publisher) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", "a")
        poll = bare.begin_poll(timeout=early_answers + 0.3)
        assert poll.result().incarnation == bare.incarnation
        assert (poll.code(), poll.details()) == (grpc.StatusCode.OK, "")
        bare.close()


def test_an_invalid_channel_poll_over_grpc_is_refused() -> None:
    with served(ChannelPublisher()) as endpoint:
        bare = BareSubscriber(endpoint)
        poll = bare.begin_poll(max_messages=-1)
        assert poll.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert poll.details().startswith("max_messages: ")
        bare.close()


def test_closing_a_channel_publisher_ends_waiting_channel_polls() -> None:
    """The polls end before `close` returns, so that the server may be stopped at once.

    Later polls end, too.
    """
    publisher = ChannelPublisher()
    with served(publisher) as endpoint, parked(publisher, endpoint) as polls:
        publisher.close()
        for poll in polls:
            assert poll.code() is grpc.StatusCode.UNAVAILABLE
            assert poll.details() == "The publisher is closed."
        bare = BareSubscriber(endpoint, "late")
        assert bare.begin_poll().code() is grpc.StatusCode.UNAVAILABLE
        bare.close()


@pytest.mark.parametrize("grace", [None, 0.1])
def test_a_grpc_server_can_stop_while_channel_polls_are_waiting(grace: float | None) -> None:
    """The server stops even without `close`, and no state of the polls is left."""
    publisher = ChannelPublisher()
    server = grpc.server(ThreadPoolExecutor(2))
    publisher.add_to(server)
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with parked(publisher, endpoint) as polls:
        assert server.stop(grace).wait(TIMEOUT)
        for poll in polls:
            assert poll.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        eventually(lambda: publisher.statistics().parked == 0)
    publisher.close()


@pytest.mark.parametrize("timeout", [None, TIMEOUT])
def test_finished_channel_polls_leave_no_objects_in_memory(timeout: float | None) -> None:
    """An answered or cancelled poll is freed without waiting for Python's garbage collector."""
    publisher = ChannelPublisher()
    with served(publisher) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", "a")
        gc.disable()
        try:
            before = parked_objects()
            given_up = bare.begin_poll(timeout=timeout)
            eventually(lambda: publisher.statistics().parked == 1)
            assert parked_objects() == before + 1
            given_up.cancel()
            eventually(lambda: publisher.statistics().parked == 0)
            answered = bare.begin_poll(timeout=timeout)
            eventually(lambda: publisher.statistics().parked == 1)
            publisher.publish("c", "a", "x")
            assert data_of(answered.result().items) == ["x"]
            at_once = bare.begin_poll(timeout=timeout)
            assert data_of(at_once.result().items) == ["x"]
            eventually(lambda: parked_objects() == before)
        finally:
            gc.enable()
        bare.close()


def test_a_channel_poll_whose_answer_cannot_be_sent_does_not_block_other_polls(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is logged."""
    finish = SharedChannelCore.finish_poll

    def fail(core: SharedChannelCore, poll: Poll) -> encoded.EncodedPollResponse:
        if poll.max_items == 1:
            raise ValueError("a fault")
        return finish(core, poll)

    monkeypatch.setattr(SharedChannelCore, "finish_poll", fail)
    publisher = ChannelPublisher()
    with served(publisher) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", "a")
        publisher.publish("c", "a", "x")
        faulty = bare.begin_poll(max_messages=1)
        eventually(lambda: "a fault" in caplog.text)
        assert data_of(bare.poll()) == ["x"]
        faulty.cancel()
        bare.close()


def calling(behaviour: Any) -> Any:
    """Call the handler directly, as most interceptors do, without handling deferred replies."""

    @functools.wraps(behaviour)
    def poll(request: Any, context: grpc.ServicerContext) -> Any:
        yield from behaviour(request, context)

    return poll


def with_a_context_of_its_own(behaviour: Any) -> Any:
    class Context:
        def __init__(self, context: grpc.ServicerContext) -> None:
            self._context = context

        def __getattr__(self, name: str) -> Any:
            return getattr(self._context, name)

    def poll(request: Any, context: grpc.ServicerContext, send: Any) -> Any:
        return behaviour(request, Context(context), send)

    poll.experimental_non_blocking = True  # type: ignore[attr-defined]
    return poll


@pytest.mark.parametrize("change", [calling, with_a_context_of_its_own])
def test_a_channel_poll_is_answered_when_a_server_interceptor_replaces_the_handler(
    change: Callable[[Any], Any], early_answers: float
) -> None:
    """Then a poll waits on its thread for a message, its deadline, or the end of its caller."""
    publisher = ChannelPublisher()
    with served(publisher, interceptors=[Interceptor(change)]) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", "a")
        poll = bare.begin_poll()
        eventually(lambda: publisher.statistics().parked == 1)
        publisher.publish("c", "a", "x")
        (item,) = poll.result().items
        idle = bare.begin_poll(item.seq, timeout=early_answers + 0.3)
        assert list(idle.result().items) == []
        refused = bare.begin_poll(max_messages=-1)
        assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        given_up = bare.begin_poll(item.seq)
        eventually(lambda: publisher.statistics().parked == 1)
        given_up.cancel()
        eventually(lambda: publisher.statistics().parked == 0)
        last = bare.begin_poll(item.seq)
        eventually(lambda: publisher.statistics().parked == 1)
        publisher.close()
        assert last.code() is grpc.StatusCode.UNAVAILABLE
        bare.close()


def test_a_program_with_an_unclosed_channel_publisher_ends_although_polls_are_waiting() -> None:
    command = [sys.executable, "-c", FORGETFUL]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        stdin, stdout = program.stdin, program.stdout

        def count() -> int:
            stdin.write("?\n")
            stdin.flush()
            return int(stdout.readline())

        bare = BareSubscriber(f"127.0.0.1:{int(stdout.readline())}")
        poll = bare.begin_poll()
        eventually(lambda: count() == 1)
        try:
            _, errors = program.communicate(timeout=TIMEOUT)
        finally:
            program.kill()
        assert program.returncode == 0, errors
        assert poll.code() is grpc.StatusCode.UNAVAILABLE
        bare.close()
