"""The rules of a fetch, without threads and without a server."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream import PullTimeout
from pullstream.fetch.protocol import EXTENSION, LONGEST_LINGER, Fetch, Fetched, Wanted
from pullstream.rpc.rpcs import Rpcs
from pullstream.rpc.sansio import Sleep, UnaryCall
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import DeadlineExceeded, NotFound, RpcError, Unavailable
from pullstream_protocol.messages import pubsub_pb2 as pubsub

NAME = "projects/p/subscriptions/s"


class Script:
    """Runs a fetch. Each Pull takes the scripted seconds and returns messages or an error.

    After the end of the script, each Pull takes all its time and returns nothing. `settles_in` is
    the seconds that a change of deadlines takes.
    """

    settles_in = 0.0
    id_length = 0

    def __init__(self, *answers: tuple[float, int | BaseException]) -> None:
        self.clock = ManualClock()
        self.calls: list[UnaryCall] = []
        self.given_back: list[str] = []
        self.extended: list[tuple[float, int]] = []
        self.pauses = 0
        self._answers = list(answers)
        self.count = 0

    def run(self, **wanted: Any) -> Fetched:
        steps = Fetch(Wanted(NAME, **wanted), self.clock).steps()
        raised: BaseException | None = None
        while True:
            try:
                step = next(steps) if raised is None else steps.throw(raised)
            except StopIteration as end:
                fetched: Fetched = end.value
                return fetched
            raised = None
            try:
                self._carry_out(step)
            except BaseException as error:
                raised = error

    def outcome(self, **wanted: Any) -> Fetched | PullTimeout | RpcError:
        """Return the result of the fetch or its exception."""
        try:
            return self.run(**wanted)
        except (PullTimeout, RpcError) as error:
            return error

    def _carry_out(self, step: UnaryCall | Sleep) -> None:
        if isinstance(step, Sleep):
            self.pauses += 1
            self.clock.advance(max(step.until - self.clock.monotonic(), 0))
            return
        request: Any = step.request
        assert step.timeout is not None
        if step.method == "ModifyAckDeadline":
            assert request.ByteSize() < 512 * 1024
            self.clock.advance(min(self.settles_in, step.timeout))
            if self.settles_in > step.timeout:
                raise DeadlineExceeded("too late")
            if request.ack_deadline_seconds:
                self.extended.append((self.clock.monotonic(), request.ack_deadline_seconds))
            else:
                self.given_back += request.ack_ids
            return
        assert step.timeout > 0
        self.calls.append(step)
        takes, brings = self._next(step)
        self.clock.advance(min(takes, step.timeout))
        if isinstance(brings, BaseException):
            raise brings
        if takes > step.timeout:
            raise DeadlineExceeded("too late")
        step.response = self._response(min(brings, request.max_messages))

    def _next(self, step: UnaryCall) -> tuple[float, int | BaseException]:
        if self._answers:
            return self._answers.pop(0)
        request: Any = step.request
        if request.return_immediately:
            return 0.0, 0
        assert step.timeout is not None
        return max(step.timeout - 0.1, step.timeout * 0.9), 0

    def _response(self, count: int) -> pubsub.PullResponse:
        ids = [str(self.count + i).zfill(self.id_length) for i in range(count)]
        self.count += count
        return pubsub.PullResponse(received_messages=[{"ack_id": each} for each in ids])

    def asked(self) -> Sequence[tuple[bool, int, float]]:
        """Return for each Pull whether it was immediate, its maximum, and its timeout."""
        requests: list[tuple[Any, float]] = [
            (call.request, round(call.timeout or 0, 3)) for call in self.calls
        ]
        return [(r.return_immediately, r.max_messages, timeout) for r, timeout in requests]


def ids(fetched: Fetched) -> list[str]:
    return [m.ack_id for _, response in fetched.responses for m in response.received_messages]


def test_the_second_request_of_a_fetch_waits_only_for_the_rest_of_the_fetch_timeout() -> None:
    """Half of the first of five seconds is over."""
    script = Script((0.5, 0), (1.0, 2))
    fetched = script.run(max_messages=3)
    assert script.asked() == [(True, 3, 5.0), (False, 3, 4.5)]
    assert (ids(fetched), fetched.reason) == (["0", "1"], "drained")


@pytest.mark.parametrize(("timeout", "takes"), [(5.0, 4.91), (0.5, 0.46), (0.01, 0.0095)])
def test_a_fetch_sends_no_further_request_if_too_little_of_its_timeout_is_left(
    timeout: float, takes: float
) -> None:
    """The margin is 100 ms, or a tenth of a timeout below a second."""
    script = Script((takes, 0))
    with pytest.raises(PullTimeout):
        script.run(timeout=timeout)
    assert len(script.calls) == 1


@pytest.mark.parametrize("timeout", [0.05, 1.0, 5.0, 15.0])
def test_a_fetch_sends_no_further_request_if_an_answer_arrives_just_before_its_timeout(
    timeout: float,
) -> None:
    """The server's own margin is too short for another request."""
    script = Script()
    with pytest.raises(PullTimeout) as raised:
        script.run(timeout=timeout)
    assert len(script.calls) == 2
    assert raised.value.answered


def test_the_result_of_a_fetch_with_missing_ok_is_empty_if_no_message_arrives() -> None:
    """The caller allows this with `missing_ok`. Without an answer the error says so."""
    fetched = Script().run(timeout=5.0, missing_ok=True)
    assert (ids(fetched), fetched.reason) == ([], "timed_out")
    with pytest.raises(PullTimeout) as raised:
        Script((5.0, DeadlineExceeded("late"))).run(timeout=5.0, missing_ok=True)
    assert not raised.value.answered


def test_a_long_fetch_sends_another_long_poll_after_one_that_ended_without_messages() -> None:
    """No call waits longer than a server allows."""
    script = Script()
    with pytest.raises(PullTimeout):
        script.run(timeout=200.0)
    assert [timeout for _, _, timeout in script.asked()][1:3] == [LONGEST_LINGER, LONGEST_LINGER]
    assert 199 < script.clock.monotonic() <= 200


def test_after_a_full_response_a_fetch_requests_more_without_waiting_for_new_messages() -> None:
    """There may be more messages than one response can hold."""
    script = Script((0, 1000), (0, 1000), (0, 10))
    fetched = script.run(max_messages=2500)
    assert [asked[:2] for asked in script.asked()] == [(True, 2500), (True, 1500), (True, 500)]
    assert (len(ids(fetched)), fetched.reason) == (2010, "drained")


@pytest.mark.parametrize("answer", [0, DeadlineExceeded("nothing")])
def test_the_pauses_between_fetch_requests_grow_if_the_server_answers_without_waiting(
    answer: int | RpcError,
) -> None:
    """The pauses between the requests grow."""
    script = Script(*[(0.0, answer)] * 1000)
    with pytest.raises(PullTimeout):
        script.run(timeout=5.0)
    assert script.pauses >= 5
    assert len(script.calls) < 20


def test_a_fetch_whose_last_request_gets_no_answer_ends_with_the_reason_timed_out() -> None:
    """The last request had no answer, so the reason is not "drained"."""
    script = Script((0, 1000), (1000, 0))
    fetched = script.run(max_messages=2500, timeout=5.0, no_wait=True)
    assert (len(ids(fetched)), fetched.reason) == (1000, "timed_out")


def test_the_timeout_error_of_a_fetch_states_the_time_waited_for_an_answer() -> None:
    """The default limit is 20 s."""
    script = Script((1000, 0))
    with pytest.raises(PullTimeout, match=r"did not answer .* within 20\.0 s"):
        script.run(timeout=None, no_wait=True)


def test_a_fetch_cancelled_before_its_waiting_request_is_sent_ends_without_waiting() -> None:
    """The thread that starts the call cancels the fetch."""
    fetch = Fetch(Wanted(NAME, 2, min_messages=2), ManualClock())
    steps = fetch.steps()
    immediate = next(steps)
    assert isinstance(immediate, UnaryCall)
    immediate.response = pubsub.PullResponse()
    fetch.cancel()
    lingering = next(steps)
    assert isinstance(lingering, UnaryCall)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        grpc.insecure_channel(f"127.0.0.1:{silent.getsockname()[1]}") as channel,
    ):
        assert lingering.begin(Rpcs(channel)).cancelled()


def test_a_fetch_extends_the_leases_of_its_messages_while_it_waits_for_more_messages() -> None:
    """The first extension comes within the shortest possible lease.

    Later ones come within the extension.
    """
    script = Script((0, 1))
    fetched = script.run(max_messages=2, min_messages=2, timeout=120.0)
    assert (ids(fetched), fetched.reason) == (["0"], "timed_out")
    times = [when for when, seconds in script.extended if seconds == EXTENSION]
    assert 7 < times[0] <= 8
    assert all(later - earlier < EXTENSION for earlier, later in pairwise(times))
    assert 120 - times[-1] < EXTENSION


def test_a_fetch_extends_the_leases_of_messages_from_later_responses() -> None:
    """The earlier messages may have just been extended for a minute."""
    script = Script((0, 1), (9.0, 0), (3.0, 1))
    script.run(max_messages=3, min_messages=3, timeout=60.0)
    came = [when for when, seconds in script.extended if seconds == EXTENSION]
    second = came[0] + 3.0
    assert second + 7 < came[1] <= second + 8


def test_a_fetch_extends_message_leases_between_one_full_response_and_the_next() -> None:
    """The fetch receives one full response after the other."""
    script = Script(*[(3.0, 1000)] * 6)
    fetched = script.run(max_messages=10_000, timeout=None)
    assert len(ids(fetched)) == 6000
    assert script.extended


@pytest.mark.parametrize("settles_in", [0.5, 100.0])
def test_a_fetch_keeps_its_time_limit_when_lease_extensions_fail(settles_in: float) -> None:
    """The messages may be redelivered then. The next pull would report a permanent problem."""
    script = Script(*[(0, 1000)] * 6)
    script.settles_in = settles_in
    fetched = script.run(max_messages=7000, min_messages=7000, timeout=20.0)
    assert (len(ids(fetched)), fetched.reason) == (6000, "timed_out")
    assert 19 < script.clock.monotonic() <= 20


def test_lease_requests_of_a_fetch_with_long_ack_ids_stay_within_the_request_size_limit() -> None:
    """A server accepts half a megabyte, and Google's ids have two hundred characters."""
    script = Script(*[(0, 1000)] * 3, (0, NotFound("gone")))
    script.id_length = 220
    with pytest.raises(NotFound):
        script.run(max_messages=4000)
    assert len(script.given_back) == 3000


def test_a_fetch_with_a_short_wait_for_more_messages_extends_no_lease() -> None:
    """The subscription's own ack deadline may be longer."""
    script = Script((0, 1))
    script.run(max_messages=2, min_messages=2, timeout=5.0)
    assert script.extended == []


@pytest.mark.parametrize("error", [NotFound("gone"), KeyboardInterrupt(), Unavailable("away")])
def test_a_failed_fetch_nacks_the_messages_received_before_the_error(error: BaseException) -> None:
    """The caller gets the error."""
    script = Script((0, 2), (1.0, error))
    with pytest.raises(type(error)):
        script.run(max_messages=5, min_messages=5)
    assert script.given_back == ["0", "1"]


def test_a_fetch_interrupted_after_the_arrival_of_a_response_nacks_its_messages() -> None:
    """The answer had arrived when the wait for it was interrupted."""
    steps = Fetch(Wanted(NAME), ManualClock()).steps()
    call = next(steps)
    assert isinstance(call, UnaryCall)
    call.response = pubsub.PullResponse(received_messages=[pubsub.ReceivedMessage(ack_id="a")])
    return_call = steps.throw(KeyboardInterrupt())
    assert isinstance(return_call, UnaryCall)
    request: Any = return_call.request
    assert (request.ack_ids, request.ack_deadline_seconds) == (["a"], 0)
    # The return fails if the server is unreachable. The caller still gets the interruption.
    with pytest.raises(KeyboardInterrupt):
        steps.throw(Unavailable("away"))


answers = st.tuples(st.floats(0, 3), st.one_of(st.integers(0, 1200), st.just(Unavailable("away"))))


@given(
    script=st.lists(answers, max_size=6),
    max_messages=st.integers(1, 3000),
    min_part=st.floats(0, 1),
    timeout=st.floats(0.05, 30),
    no_wait=st.booleans(),
)
def test_a_fetch_ends_within_its_timeout_and_nacks_all_messages_if_it_raises_an_error(
    script: list[tuple[float, int | BaseException]],
    max_messages: int,
    min_part: float,
    timeout: float,
    no_wait: bool,
) -> None:
    """A fetch ends in time with the right number of messages. None is both kept and returned."""
    run = Script(*script)
    least = max(1, int(max_messages * min_part))
    fetched = run.outcome(
        max_messages=max_messages, min_messages=least, timeout=timeout, no_wait=no_wait
    )
    if isinstance(fetched, Fetched):
        count = len(ids(fetched))
        assert run.given_back == []
        assert count <= max_messages
        assert (fetched.reason == "filled") == (count == max_messages)
        if not no_wait:
            assert count >= (1 if fetched.reason == "timed_out" else least)
    else:
        received = [str(number) for number in range(run.count)]
        assert run.given_back == received
        assert not isinstance(fetched, PullTimeout) or not received
    assert run.clock.monotonic() <= timeout + 1e-6
    if no_wait:
        assert all(immediate for immediate, _, _ in run.asked())
