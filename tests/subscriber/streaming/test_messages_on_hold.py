"""Ordering keys at the client: one message at a time, in order, and again after a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from pullstream.flow_control import FlowControl
from pullstream.message import Disposition, Message
from pullstream.streaming import messages_on_hold
from pullstream.streaming.failed_key import (
    FIRST_WAIT,
    MIN_WAIT,
    PROBE_AFTER,
    Actions,
    Redeliveries,
)
from pullstream.streaming.key_messages import READER_DELAY
from pullstream.streaming.messages_on_hold import MessagesOnHold
from tests.subscriber.streaming.fakes import ids, message

Ended = tuple[list[Message], Actions | None]


def keyed(
    *ack_ids: str, key: str = "k", may_be_stale: bool = False, at: float = 0.0
) -> list[Message]:
    """Return messages of one key. A slash in the ack id separates the message from the delivery."""
    messages = [message(ack_id, key=key, at=at) for ack_id in ack_ids]
    for one in messages:
        one.batch.may_be_stale = may_be_stale
    return messages


class Hold(MessagesOnHold):
    """A hold whose time the test sets, with short names for frequent steps."""

    def __init__(self, **limits: float | None) -> None:
        super().__init__(FlowControl(**limits))  # type: ignore[arg-type]
        self.now = 0.0

    def receive(self, *ack_ids: str, key: str = "k", may_be_stale: bool = False) -> Actions:
        """Offer a response to the hold."""
        messages = keyed(*ack_ids, key=key, may_be_stale=may_be_stale, at=self.now)
        return self.offer(messages, self.now)

    def nack(self, one: Message, *, taken: bool = True) -> Actions:
        """Nack a running message and end its turn. Take the nack at the server if `taken`."""
        one.settled = Disposition.NACK
        actions = self.failed(one)
        assert self.end(one) == []
        if taken:
            self.take_nack(one.ack_id)
        return actions

    def take_nack(self, *ack_ids: str) -> Actions:
        return self.nacks_accepted(ack_ids, self.now)

    def ack(self, one: Message) -> list[str]:
        """Acknowledge a message and end its turn. Return the messages that run next."""
        one.settled = one.settled or Disposition.ACK
        return self.end(one)

    def end(self, one: Message) -> list[str]:
        following, actions = self.ended(one)
        return ids([*following, *(actions.run if actions else ())])

    def pass_time(self, seconds: float) -> Actions:
        self.now += seconds
        return self.waits_over(self.now)


@contextmanager
def another_thread_ends(hold: Hold, one: Message) -> Iterator[Callable[[], Ended]]:
    """Let another thread end a turn, which waits for a third thread until the end of the context.

    Yields:
        Returns the result of the other thread.
    """
    is_held, may_release = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with hold._lock:
            is_held.set()
            may_release.wait(10)

    with ThreadPoolExecutor(2) as pool:
        pool.submit(hold_the_lock)
        is_held.wait(10)
        ended = pool.submit(hold.ended, one)
        # Then the other thread is about to wait for the lock.
        while not (hold._ending.locked() or ended.done()):
            pass
        try:
            yield partial(ended.result, 10)
        finally:
            may_release.set()


def run_one(hold: Hold, *behind: str, key: str = "k") -> Message:
    """Let "0" run, with messages held behind it."""
    first, *held = keyed("0", *behind, key=key)
    assert hold.offer([first, *held], hold.now).run == [first]
    return first


# ---- without a failure -------------------------------------------------------------------------


def test_messages_without_an_ordering_key_are_never_held() -> None:
    """Messages without a key are never held, even several at once."""
    hold = Hold()
    offered = hold.offer([message("1"), message("2")], 0.0)
    assert (ids(offered.run), offered.to_return, len(hold)) == (["1", "2"], [], 0)


def test_one_message_of_an_ordering_key_runs_and_the_others_wait_in_order() -> None:
    """The end of each message starts the next one, and nothing is left after the last."""
    hold = Hold()
    first, second, third = keyed("1", "2", "3")
    assert ids(hold.offer([first, second], 0.0).run) == ["1"]
    assert hold.offer([third], 0.0).run == []
    assert len(hold) == 2
    assert hold.ack(first) == ["2"]
    assert hold.ack(second) == ["3"]
    assert hold.ack(third) == []
    assert ids(hold.receive("4").run) == ["4"]


def test_a_slow_message_of_one_ordering_key_does_not_hold_messages_of_other_keys() -> None:
    """A slow key blocks only itself."""
    hold = Hold()
    messages = [*keyed("1", "2", key="a"), *keyed("3", "4", key="b"), message("5")]
    assert ids(hold.offer(messages, 0.0).run) == ["1", "3", "5"]


def test_no_message_held_for_an_ordering_key_runs_after_a_shutdown() -> None:
    """The shutdown takes all held messages, and the end of a callback starts no other."""
    hold = Hold()
    first = run_one(hold, "1")
    failing = run_one(hold, "2", key="failed")
    hold.nack(failing)
    assert sorted(ids(hold.give_up().to_return)) == ["1", "2"]
    assert len(hold) == 0
    assert hold.failed(first) == Actions()
    assert hold.lost([first], 0.0) == Actions()
    assert hold.end(first) == []
    offered = hold.offer([message("3"), *keyed("4")], 0.0)
    assert (offered.run, ids(offered.to_return)) == ([], ["3", "4"])


# ---- a failure ---------------------------------------------------------------------------------


def test_later_messages_of_a_key_are_held_until_its_failed_message_is_handled() -> None:
    """A server that redelivers the failed message alone does not see the later ones."""
    hold = Hold()
    failing = run_one(hold, "1", "2")
    actions = hold.nack(failing)
    assert (actions.to_return, actions.forget, len(hold)) == ([], [], 2)
    (again,) = hold.receive("0/again").run
    assert again.ack_id == "0/again"
    assert hold.ack(again) == ["1"]


def test_a_redelivery_replaces_the_held_delivery_of_the_same_message() -> None:
    """The first redelivery shows that the server restarts the key. Older deliveries are stale."""
    hold = Hold()
    hold.nack(run_one(hold, "1", "2", "3"))
    (again,) = hold.receive("0/again").run
    offered = hold.receive("1/again")
    assert sorted(ids(offered.forget)) == ["1", "2", "3"]
    assert hold.receive("2/again", "3/again") == Actions()
    assert len(hold) == 3
    assert hold.ack(again) == ["1/again"]


def test_only_the_newest_of_several_deliveries_of_a_message_in_one_response_runs() -> None:
    """The whole response is examined before the next message begins."""
    hold = Hold()
    failing = run_one(hold, "1", "2")
    hold.nack(failing)
    hold.now += READER_DELAY
    offered = hold.receive("1/again", "2/again")
    assert (ids(offered.run), sorted(ids(offered.forget))) == (["1/again"], ["1", "2"])


def test_no_message_of_a_key_begins_while_the_callback_of_its_failed_message_runs() -> None:
    """Nothing of the key begins while the callback runs, not even the redelivery of its message."""
    hold = Hold()
    failing = run_one(hold)
    failing.settled = Disposition.NACK
    hold.failed(failing)
    assert hold.receive("0/again", "1").run == []
    assert len(hold) == 2
    assert hold.end(failing) == ["0/again"]


def test_a_failure_of_a_message_that_is_reported_twice_counts_as_one_failure() -> None:
    """The worker and the dispatcher both report it. The second report is not a new failure."""
    hold = Hold()
    failing = run_one(hold, "1")
    hold.nack(failing)
    (again,) = hold.receive("0/again").run
    assert hold.failed(failing) == Actions()
    assert hold.ack(again) == ["1"]


def test_a_nack_while_the_next_message_of_its_key_runs_holds_the_messages_after_that_one() -> None:
    """A message is nacked while the next one runs. The next one finishes, and later ones wait."""
    hold = Hold()
    late, running, held = keyed("0", "1", "2")
    hold.offer([late, running, held], 0.0)
    assert hold.end(late) == ["1"]
    late.settled = Disposition.NACK
    hold.failed(late)
    assert hold.ack(running) == []
    hold.take_nack("0")
    assert ids(hold.receive("0/again").run) == ["0/again"]


def test_an_ordering_key_waits_for_several_failed_messages_in_order() -> None:
    """Message 2 lost its lease while message 0 was running, which then failed too."""
    hold = Hold()
    first, second, third, fourth = keyed("0", "1", "2", "3")
    hold.offer([first, second, third, fourth], 0.0)
    hold.lost([third], 0.0)
    hold.nack(first)
    (again,) = hold.receive("0/again").run
    assert hold.ack(again) == ["1"]
    assert hold.ack(second) == []
    assert ids(hold.receive("2/again").run) == ["2/again"]


def test_an_ordering_key_whose_running_message_lost_its_lease_runs_the_redelivery_next() -> None:
    """The key continues with the redelivery after the callback has ended."""
    hold = Hold()
    first = run_one(hold, "1")
    first.settled = Disposition.DROP
    hold.lost([first, message("unordered")], 60.0)
    assert hold.receive("0/again").run == []
    assert hold.end(first) == ["0/again"]


def test_a_failed_message_holds_no_messages_of_other_ordering_keys() -> None:
    hold = Hold()
    hold.nack(run_one(hold, key="a"))
    messages = [*keyed("2", key="a"), *keyed("3", key="b"), message("4")]
    assert ids(hold.offer(messages, 0.0).run) == ["3", "4"]


def test_the_oldest_failed_ordering_keys_are_forgotten_beyond_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest failed keys are forgotten if they are not redelivered."""
    monkeypatch.setattr(messages_on_hold, "MAX_FAILED_KEYS", 3)
    hold = Hold()
    for number in range(4):
        hold.nack(run_one(hold, key=str(number)), taken=False)
    assert ids(hold.receive("1", key="0").run) == ["1"]
    assert hold.receive("1", key="1").run == []


# ---- a failed message that is not redelivered ----------------------------------------------------


def test_a_redelivered_later_message_of_a_key_runs_if_its_failed_message_is_deleted() -> None:
    """The failed message is in the dead-letter topic, or another subscriber handled it."""
    hold = Hold()
    hold.nack(run_one(hold, "1", "2"))
    hold.now += READER_DELAY
    offered = hold.receive("1/again", "2/again")
    assert (ids(offered.run), offered.to_return) == (["1/again"], [])


def test_the_first_delivery_of_a_message_stays_held_behind_a_failed_message_of_its_key() -> None:
    """The server may have sent it before it took the nack."""
    hold = Hold()
    hold.nack(run_one(hold))
    assert hold.receive("1") == Actions(parked=1, parked_bytes=keyed("1")[0].batch.bytes_each)
    assert ids(hold.receive("0/again").run) == ["0/again"]


def test_a_redelivery_received_before_the_answer_to_an_earlier_nack_runs_no_callback() -> None:
    """The lease of that message ended by itself. It is returned once as a probe."""
    hold = Hold()
    hold.nack(run_one(hold, "1"), taken=False)
    assert hold.receive("1/again").run == []
    assert hold.take_nack("0").due == hold.now + PROBE_AFTER
    assert ids(hold.pass_time(PROBE_AFTER).to_return) == ["1/again"]
    hold.take_nack("1/again")
    assert ids(hold.receive("1/third").run) == ["1/third"]


def test_a_redelivery_received_before_a_nack_answer_but_processed_after_it_is_held() -> None:
    """With exactly-once delivery, a message waits for its receipt, and arrives after the answer."""
    hold = Hold()
    failing = run_one(hold, "1")
    again = keyed("1/again", at=hold.now)
    hold.nack(failing, taken=False)
    hold.now += 1
    hold.take_nack("0")
    hold.now += 1
    assert hold.offer(again, hold.now).run == []
    assert ids(hold.receive("0/again").run) == ["0/again"]


def test_a_redelivery_that_was_sent_before_its_keys_nack_was_accepted_runs_no_callback() -> None:
    """The reader's thread may get no processor while another thread reads the answer.

    1. The server sends 1 again, and then accepts the nack of 0.
    2. The client reads the answer, and then the delivery, because each has its own connection.
    3. The server sends 0 and 1 again.
    """
    hold = Hold()
    hold.nack(run_one(hold, "1"))
    hold.now += READER_DELAY / 2
    assert hold.receive("1/again").run == []
    offered = hold.receive("0/again", "1/third")
    assert (ids(offered.run), ids(offered.forget)) == (["0/again"], ["1/again"])


def test_a_key_whose_failed_message_was_deleted_continues_after_one_more_redelivery() -> None:
    """The key returns the next message; its second redelivery shows that the first one is gone."""
    hold = Hold()
    hold.nack(run_one(hold, "1", "2"))
    assert hold.receive("1/again", "2/again").run == []
    assert ids(hold.pass_time(PROBE_AFTER).to_return) == ["1/again"]
    hold.take_nack("1/again")
    assert ids(hold.receive("1/third", "2/third").run) == ["1/third"]


def test_after_a_redelivery_wait_a_redelivery_is_returned_to_the_server_and_the_next_runs() -> None:
    """A server may count each return as a delivery attempt."""
    hold = Hold(max_messages=1)
    assert ids(hold.nack(run_one(hold, "1", "2")).to_return) == ["1", "2"]
    hold.take_nack("1", "2")
    assert hold.receive("1/again").to_return == []
    assert ids(hold.pass_time(PROBE_AFTER).to_return) == ["1/again"]
    hold.take_nack("1/again")
    assert ids(hold.receive("1/third").run) == ["1/third"]


def test_a_redelivery_that_may_have_been_sent_before_an_earlier_nack_stays_held() -> None:
    """The server may have sent the redelivery before it took the nack."""
    hold = Hold()
    hold.nack(run_one(hold, "1"))
    assert hold.receive("1/again", may_be_stale=True).run == []
    assert ids(hold.pass_time(PROBE_AFTER).to_return) == ["1/again"]
    hold.take_nack("1/again")
    assert ids(hold.receive("1/third").run) == ["1/third"]


def test_held_messages_between_a_failed_and_a_redelivered_one_are_returned_to_the_server() -> None:
    """The messages were handled elsewhere, or only the lease of 2 has ended."""
    hold = Hold()
    hold.nack(run_one(hold, "1", "2"))
    hold.now += READER_DELAY
    offered = hold.receive("2/again")
    assert (offered.run, ids(offered.to_return)) == ([], ["1"])
    hold.take_nack("1")
    assert ids(hold.receive("1/again").run) == ["1/again"]


def test_the_oldest_message_behind_a_failed_one_is_returned_to_the_server_first() -> None:
    """A redelivery of the oldest message would show that the failed one is gone."""
    hold = Hold()
    hold.nack(run_one(hold, "1", "2", "3"))
    assert hold.next_due() == FIRST_WAIT
    assert ids(hold.pass_time(FIRST_WAIT).to_return) == ["1"]
    hold.take_nack("1")
    assert ids(hold.pass_time(FIRST_WAIT).to_return) == ["2", "3"]
    assert len(hold) == 0
    # From now on, messages that cannot run are not held.
    assert ids(hold.receive("4").to_return) == ["4"]


def test_waiting_messages_of_a_key_run_after_the_redelivery_of_its_returned_message() -> None:
    """The others keep their first delivery after the oldest one has been redelivered."""
    hold = Hold()
    hold.nack(run_one(hold, "1", "2", "3"))
    hold.pass_time(FIRST_WAIT)
    hold.take_nack("1")
    (again,) = hold.receive("1/again").run
    assert hold.ack(again) == ["2"]


def test_the_wait_for_a_redelivery_is_three_times_the_slowest_recent_redelivery() -> None:
    """The wait is three times the slowest recent redelivery, with a minimum of some seconds."""
    hold = Hold()
    for delay, wait in ((0.0, MIN_WAIT), (20.0, 60.0), (1.0, 60.0)):
        failing = run_one(hold, key=f"{delay}")
        hold.nack(failing)
        hold.now += delay
        (again,) = hold.receive("0/again", key=f"{delay}").run
        again.settled = Disposition.NACK
        hold.failed(again)
        hold.end(again)
        assert hold.take_nack("0/again").due == hold.now + wait


def test_a_configured_wait_for_a_redelivery_replaces_the_measured_one() -> None:
    """A configured wait disables the learning."""
    redeliveries = Redeliveries(7.0)
    redeliveries.observe(100.0)
    assert redeliveries.wait(200.0) == 7.0
    hold = Hold(max_redelivery_wait=0)
    hold.nack(run_one(hold, "1"))
    assert ids(hold.pass_time(0.0).to_return) == ["1"]


def test_the_wait_for_a_redelivery_begins_when_the_delay_of_the_nack_has_passed() -> None:
    """The wait begins when the message may be redelivered."""
    hold = Hold()
    failing = run_one(hold, "1")
    hold.nack(failing, taken=False)
    assert hold.nacks_accepted(["0"], 600.0).due == 600.0 + FIRST_WAIT


def test_a_failed_key_soon_returns_a_new_message_to_a_server_that_resends_later_messages() -> None:
    """The message is newer than a restart elsewhere, or it is redelivered with the restart."""
    hold = Hold()
    hold.nack(run_one(hold, "1"))
    (again,) = hold.receive("0/again", "1/again").run
    assert hold.ack(again) == ["1/again"]
    hold.nack(run_one(hold, key="other"))
    assert hold.receive("5", key="other").due == hold.now + PROBE_AFTER
    assert ids(hold.pass_time(PROBE_AFTER).to_return) == ["5"]
    hold.take_nack("5")
    assert ids(hold.receive("5/again", key="other").run) == ["5/again"]


# ---- deliveries that are lost before they arrive -------------------------------------------------


def lose(hold: Hold, one: Message) -> Actions:
    """Report the lost lease of a message."""
    one.settled = Disposition.LOST
    return hold.lost([one], hold.now)


def test_a_failed_message_whose_redelivery_lost_its_lease_still_holds_later_messages() -> None:
    """The later message was read before the refusal, so it proves nothing."""
    hold = Hold()
    hold.nack(run_one(hold, "1"))
    hold.now += 60
    again, behind = keyed("0/again", "1/again", at=hold.now)
    hold.now += 1
    lose(hold, again)
    assert hold.offer([behind], hold.now).run == []
    assert ids(hold.receive("0/third", "1/third").run) == ["0/third"]


def test_the_lease_end_of_an_older_delivery_does_not_restart_the_wait_for_a_redelivery() -> None:
    """The server answers the return of the newer one."""
    hold = Hold()
    failing = run_one(hold, "1")
    older = keyed("1/older", at=-1.0)[0]
    hold.nack(failing)
    hold.pass_time(FIRST_WAIT)
    hold.take_nack("1")
    due = hold.next_due()
    hold.now += 1
    lose(hold, older)
    assert hold.next_due() == due


def test_a_message_whose_exactly_once_receipt_is_refused_does_not_run() -> None:
    """The messages behind it wait for its redelivery."""
    hold = Hold()
    first, second = keyed("1", "2")
    lose(hold, first)
    assert hold.offer([first, second], hold.now).run == []
    assert ids(hold.receive("1/again").run) == ["1/again"]


def test_a_held_message_does_not_run_if_the_receipt_of_its_redelivery_is_refused() -> None:
    """The server has ended the lease of the held delivery, or it would not have sent another."""
    hold = Hold()
    first = run_one(hold, "1", "2")
    hold.now += 1
    actions = lose(hold, keyed("1/again", at=hold.now)[0])
    assert (ids(actions.forget), hold.ack(first)) == (["1"], [])
    assert ids(hold.receive("1/third").run) == ["1/third"]


# ---- handled, and redelivered --------------------------------------------------------------------


def test_a_message_handled_in_a_batch_behind_a_failed_one_is_acknowledged_on_redelivery() -> None:
    """The message was in one list with the failed one, and its acknowledgement had no effect."""
    hold = Hold()
    failing, handled = keyed("0", "1")
    hold.offer([failing, handled], 0.0)
    assert hold.take_behind(failing, 10) == [handled]
    failing.settled, handled.settled = Disposition.NACK, Disposition.ACK
    hold.failed(failing, handled=[handled])
    hold.take_nack("0")
    hold.ended(handled, [failing])
    (again,) = hold.receive("0/again").run
    assert ids(hold.receive("1/again", "2").acknowledge) == ["1/again"]
    assert hold.ack(again) == ["2"]


def test_a_message_whose_ack_with_response_failed_is_not_acknowledged_on_redelivery() -> None:
    """The user gets the failure and expects the message again."""
    hold = Hold()
    failing, handled = keyed("0", "1")
    hold.offer([failing, handled], 0.0)
    hold.take_behind(failing, 10)
    handled.ack_with_response()
    failing.settled = Disposition.NACK
    hold.failed(failing, handled=[handled])
    hold.ended(handled, [failing])
    hold.take_nack("0")
    offered = hold.receive("0/again", "1/again")
    assert (ids(offered.run), offered.acknowledge, len(hold)) == (["0/again"], [], 1)


def test_a_redelivery_during_its_messages_callback_is_acked_when_the_callback_acks() -> None:
    """The older delivery was stale, and the message is handled once."""
    hold = Hold()
    hold.nack(run_one(hold, "1"))
    (again,) = hold.receive("0/again").run
    again.settled = Disposition.ACK
    following, actions = hold.ended(again)
    assert following == []
    assert actions is not None
    (old,) = actions.run
    assert old.ack_id == "1"
    hold.receive("1/again")
    old.settled = Disposition.ACK
    _, actions = hold.ended(old)
    assert actions is not None
    assert (ids(actions.acknowledge), actions.run) == (["1/again"], [])


# ---- lists ---------------------------------------------------------------------------------------


def test_messages_held_behind_one_of_their_key_join_the_batch_of_that_message() -> None:
    """The list takes as many messages as it has room for."""
    hold = Hold()
    first = run_one(hold, "1", "2", "3")
    assert hold.waiting_behind(first) == 3
    assert ids(hold.take_behind(first, 2)) == ["1", "2"]
    assert hold.end(first) == ["3"]


def test_a_redelivered_failed_message_is_passed_to_the_batch_callback_alone() -> None:
    """A callback that cannot handle a list then fails only for the bad message."""
    hold = Hold()
    hold.nack(run_one(hold, "1", "2"))
    (again,) = hold.receive("0/again", "1/again", "2/again").run
    assert (hold.waiting_behind(again), hold.take_behind(again, 10)) == (0, [])
    assert hold.ack(again) == ["1/again"]


def test_unhandled_messages_of_a_failed_batch_wait_in_order_behind_the_failed_message() -> None:
    """The messages stay in order behind the failed message."""
    hold = Hold()
    first, second, third = keyed("0", "1", "2")
    hold.offer([first, second, third], 0.0)
    hold.take_behind(first, 10)
    first.settled = Disposition.NACK
    hold.failed(first, unhandled=[second, third])
    hold.ended(third, [first, second])
    assert len(hold) == 2
    hold.take_nack("0")
    (again,) = hold.receive("0/again").run
    assert hold.ack(again) == ["1"]


# ---- limits --------------------------------------------------------------------------------------


def test_messages_held_behind_a_failed_one_do_not_count_towards_flow_control() -> None:
    """A parked message does not count as load until its key continues."""
    hold = Hold()
    share = keyed("1")[0].batch.bytes_each
    failing = run_one(hold, "1", "2")
    failing.settled = Disposition.NACK
    actions = hold.failed(failing)
    assert (actions.parked, actions.parked_bytes) == (2, 2 * share)
    hold.end(failing)
    hold.take_nack("0")
    actions = hold.receive("3")
    assert (actions.parked, actions.parked_bytes) == (1, share)
    actions = hold.receive("0/again")
    assert (actions.parked, actions.parked_bytes) == (-3, -3 * share)


def test_waiting_messages_of_the_first_failed_key_are_returned_to_the_server_at_the_limit() -> None:
    """Messages and bytes have one window each, as large as flow control's."""
    hold = Hold(max_messages=3)
    hold.nack(run_one(hold, "1", "2", key="first"))
    failing = run_one(hold, "3", "4", key="second")
    failing.settled = Disposition.NACK
    actions = hold.failed(failing)
    assert ids(actions.to_return) == ["1", "2"]
    assert (actions.parked, len(hold)) == (0, 2)
    # Later messages of that key are returned as well.
    assert ids(hold.receive("7", key="first").to_return) == ["7"]


def test_failed_keys_return_waiting_messages_to_the_server_in_order_of_failure() -> None:
    hold = Hold(max_messages=3)
    hold.nack(run_one(hold, "1", "2", key="b"))
    assert ids(hold.nack(run_one(hold, "3", "4", key="a")).to_return) == ["1", "2"]


def test_messages_behind_a_failed_one_are_returned_to_the_server_above_max_bytes() -> None:
    size = keyed("1")[0].batch.bytes_each
    hold = Hold(max_bytes=2 * size)
    assert hold.nack(run_one(hold, "1", "2")).to_return == []
    assert ids(hold.receive("3").to_return) == ["1", "2", "3"]


def test_a_recovered_key_returns_no_messages_at_the_limit_of_waiting_messages() -> None:
    hold = Hold(max_messages=1)
    hold.nack(run_one(hold, "1", key="a"))
    hold.now += READER_DELAY
    assert ids(hold.receive("1/again", key="a").run) == ["1/again"]
    assert ids(hold.nack(run_one(hold, "2", "3", key="b")).to_return) == ["2", "3"]


def test_a_failure_in_one_ordering_key_does_not_hold_messages_of_other_keys() -> None:
    """The next message of another key needs no actions."""
    hold = Hold()
    other = run_one(hold, "1", key="other")
    hold.nack(run_one(hold, "1"))
    following, actions = hold.ended(other)
    assert (ids(following), actions) == (["1"], None)


def test_a_turn_that_ends_while_another_thread_ends_turns_is_ended_by_that_thread() -> None:
    """A worker that waited would be woken by the other one for each message."""
    hold = Hold()
    first, other = run_one(hold, "1"), run_one(hold, "1/other", key="other")
    first.settled = other.settled = Disposition.ACK
    with another_thread_ends(hold, first) as ended:
        assert hold.ended(other) == ([], None)
    following, actions = ended()
    assert (ids(following), actions) == (["1", "1/other"], None)


def test_a_turn_that_ends_while_another_key_fails_gets_the_actions_of_both_keys() -> None:
    hold = Hold()
    failing, other = run_one(hold), run_one(hold, "1/other", key="other")
    hold.nack(failing)
    (again,) = hold.receive("0/again").run
    hold.receive("1")
    again.settled = other.settled = Disposition.ACK
    with another_thread_ends(hold, other) as ended:
        assert hold.ended(again) == ([], None)
    following, actions = ended()
    assert actions is not None
    assert (ids(following), ids(actions.run)) == (["1/other"], ["1"])


def test_only_the_message_that_lost_its_lease_is_skipped_when_a_response_is_processed() -> None:
    hold = Hold()
    first, *others = [*keyed("1"), *keyed("2", key="other"), message("3")]
    lose(hold, first)
    assert hold.offer([first, *others], hold.now).run == others


def test_messages_without_an_ordering_key_that_lost_their_lease_do_not_run() -> None:
    hold = Hold()
    first = run_one(hold, "1")
    hold.lost([message("2"), first], hold.now)
    assert hold.end(first) == []
