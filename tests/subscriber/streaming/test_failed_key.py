"""FailedKey: its states, and the messages that each step returns, forgets or runs."""

from __future__ import annotations

import math

import pytest

from pullstream.message import Disposition, Message
from pullstream.streaming.failed_key import NEXT, Actions, FailedKey, KeyState, Redeliveries
from pullstream.streaming.key_messages import READER_DELAY, MissingMessages
from tests.subscriber.streaming.fakes import ids, message

NACKED, WAITING, IN_DOUBT = KeyState.NACKED, KeyState.WAITING, KeyState.IN_DOUBT
PROBED, PROBED_IN_DOUBT = KeyState.PROBED, KeyState.PROBED_IN_DOUBT
GAVE_UP, IN_ORDER = KeyState.GAVE_UP, KeyState.IN_ORDER


class Key(FailedKey):
    """A key with the failed message "0", and a time that the test sets.

    Args:
        held: Ack ids of the messages behind the failed one.
        comes_at: When the server redelivers; None: it has not accepted the nack.
        restart_keys: Whether the server is known to restart keys.
    """

    def __init__(
        self, *held: str, comes_at: float | None = 0.0, restart_keys: bool = False
    ) -> None:
        self.redeliveries = Redeliveries()
        self.redeliveries.restart_keys = restart_keys
        self.nacks: dict[str, str] = {}
        super().__init__(
            self.redeliveries, MissingMessages("k", self.nacks), number=1, is_running=False
        )
        self.now = 0.0
        self.keep(*held)
        self.lose("0")
        if comes_at is not None:
            self.accept("0", comes_at=comes_at)

    def keep(self, *ack_ids: str, at: float = 0.0) -> Actions:
        """Hold messages that were received at the time `at`."""
        actions = Actions()
        self.hold([message(one, key="k", at=at) for one in ack_ids], actions)
        return actions

    def lose(self, ack_id: str, *, at: float = 0.0) -> Actions:
        """Fail the delivery that was received at the time `at`."""
        actions = Actions()
        self.fail(message(ack_id, key="k", at=at), actions)
        return actions

    def accept(self, *ack_ids: str, comes_at: float | None = None) -> None:
        """Accept nacks and returns at the server."""
        for ack_id in ack_ids:
            self.nack_was_accepted(ack_id, self.now if comes_at is None else comes_at)

    def get(self, ack_id: str, *, may_be_stale: bool = False) -> Actions:
        """Receive a delivery now."""
        actions, one = Actions(), message(ack_id, key="k", at=self.now)
        one.batch.may_be_stale = may_be_stale
        self.receive(one, self.now, actions)
        return actions

    def end_wait(self) -> Actions:
        """Let the wait end now."""
        assert self.due is not None
        self.now, actions = self.due, Actions()
        self.wait_is_over(actions)
        return actions

    def make_room(self) -> Actions:
        """Return all messages that wait."""
        actions = Actions()
        self.return_all(actions)
        return actions

    def run(self) -> Message:
        """Begin the next turn."""
        following = self.next()
        assert following is not None
        return following

    def finish(self, one: Message, disposition: Disposition = Disposition.ACK) -> Actions:
        """Settle a message and end its turn."""
        one.settled, actions = disposition, Actions()
        self.ended(one, actions)
        return actions

    @property
    def held_ids(self) -> list[str]:
        return ids(self.held)


def probed() -> Key:
    """Return a key that has returned "1" and holds "2" to "4"."""
    key = Key("1", "2", "3", "4")
    assert ids(key.end_wait().to_return) == ["1"]
    assert (key.state, key.due) == (PROBED, None)
    return key


def probed_in_doubt() -> Key:
    """Return a key that has returned "1" and "2" and holds "3/again" and "4"."""
    key = probed()
    key.accept("1")
    key.now += READER_DELAY
    assert ids(key.get("3/again").to_return) == ["2"]
    assert key.state is PROBED_IN_DOUBT
    return key


def run_redelivered(key: Key) -> Message:
    """Run the redelivery of the failed message."""
    key.get("0/again")
    return key.run()


def handle(key: Key, ack_id: str) -> Actions:
    """Record that a callback handled a message."""
    actions = Actions()
    key.handled(message(ack_id, key="k"), actions)
    return actions


# ---- states ------------------------------------------------------------------------------------


def test_a_failed_key_waits_for_a_redelivery_before_it_returns_one_message_to_the_server() -> None:
    assert {state for state in KeyState if PROBED in NEXT[state]} == {WAITING, IN_DOUBT}
    assert {state for state in KeyState if PROBED_IN_DOUBT in NEXT[state]} == {PROBED}


def test_the_state_of_an_ordering_key_without_failures_changes_only_to_nacked() -> None:
    key = Key()
    key.get("0/again")
    assert NEXT[IN_ORDER] == {NACKED}
    with pytest.raises(RuntimeError, match=r"GAVE_UP cannot follow KeyState\.IN_ORDER"):
        key.make_room()


def test_the_wait_for_failed_messages_of_a_key_begins_when_all_their_nacks_are_accepted() -> None:
    key = Key(comes_at=None)
    key.lose("1")
    key.accept("0")
    assert (key.state, key.due) == (NACKED, None)
    key.accept("1", comes_at=10.0)
    assert (key.state, key.due) == (WAITING, 70.0)


@pytest.mark.parametrize("failing", ["0/again", "-1"])
@pytest.mark.parametrize("start", [Key, probed, probed_in_doubt])
def test_a_failure_at_or_before_the_first_failed_message_restarts_the_redelivery_wait(
    start: type[Key], failing: str
) -> None:
    """The first missing message fails again, or one before it fails."""
    key = start()
    key.lose(failing.replace("-1", ""), at=1.0)
    assert (key.state, key.due) == (NACKED, None)
    key.accept(*list(key.nacks), comes_at=0.0)
    assert key.state is WAITING


def test_a_failure_of_a_later_message_does_not_change_the_wait_for_an_earlier_redelivery() -> None:
    key = Key()
    key.lose("1")
    assert (key.state, key.due) == (WAITING, 60.0)
    key.accept("1", comes_at=10.0)
    assert (key.state, key.due) == (WAITING, 60.0)


def test_a_key_has_no_parked_messages_after_the_redelivery_of_its_failed_message() -> None:
    key = Key("1")
    key.get("0/again")
    assert (key.state, key.due, key.is_waiting, key.parked) == (IN_ORDER, None, False, 0)


def test_after_a_redelivery_the_wait_for_the_next_failed_message_of_a_key_starts_over() -> None:
    key = Key("1", "2")
    key.lose("3")
    key.accept("3")
    key.make_room()
    key.accept("1", "2")
    key.now = 10.0
    key.get("0/again")
    assert (key.state, key.due) == (WAITING, 30.0)


def test_after_a_redelivery_a_key_waits_for_nack_answers_of_messages_that_it_returned() -> None:
    key = Key("1", "2")
    key.end_wait()
    key.get("0/again")
    assert (key.state, key.due) == (NACKED, None)


def test_the_wait_for_a_returned_message_counts_from_the_servers_answer_to_the_return() -> None:
    key = probed()
    key.accept("1")
    assert (key.state, key.due) == (PROBED, key.now + 60.0)
    # Another return does not extend the wait.
    key.lose("2", at=1.0)
    due = key.due
    key.accept("2", comes_at=1000.0)
    assert (key.state, key.due) == (PROBED, due)
    assert ids(key.end_wait().to_return) == ["3", "4"]
    assert (key.state, key.due) == (GAVE_UP, None)


def test_the_redelivery_wait_of_a_key_ends_even_if_no_message_waits_behind_the_failed_one() -> None:
    key = Key()
    assert (key.end_wait().to_return, key.state, key.due) == ([], GAVE_UP, None)


def test_new_messages_of_a_key_are_returned_to_the_server_after_its_redelivery_wait_ended() -> None:
    key = Key("1", "2")
    assert ids(key.make_room().to_return) == ["1", "2"]
    key.accept("1", "2")
    assert (key.state, key.due, len(key)) == (GAVE_UP, None, 0)
    assert ids(key.get("3").to_return) == ["3"]


# ---- doubt -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comes_at", "now", "due"),
    [(0.0, 10.0, 11.0), (50.0, 10.0, 51.0), (0.0, 59.5, 60.0)],
    ids=["a second from now", "a second after the redelivery", "no later than before"],
)
def test_a_possibly_stale_redelivery_is_returned_to_the_server_unhandled_after_a_second(
    comes_at: float, now: float, due: float
) -> None:
    key = Key("1", "2", comes_at=comes_at)
    key.now = now
    assert key.get("1/again", may_be_stale=True).run == []
    assert (key.state, key.due) == (IN_DOUBT, due)
    assert ids(key.end_wait().to_return) == ["1/again"]
    assert (key.state, key.due) == (PROBED, None)


def test_a_possibly_stale_redelivery_is_held_until_earlier_nacks_of_its_key_are_answered() -> None:
    key = Key("1", comes_at=None)
    key.get("1/again")
    assert (key.state, key.due) == (IN_DOUBT, None)
    key.accept("0", comes_at=5.0)
    assert (key.state, key.due) == (IN_DOUBT, 6.0)


def test_a_possibly_stale_redelivery_is_held_even_after_the_redelivery_wait_ended() -> None:
    key = Key("1")
    key.make_room()
    key.accept("1")
    key.now = 10.0
    key.lose("2")
    key.accept("2")
    assert key.get("2/again", may_be_stale=True).to_return == []
    assert (key.state, key.due, key.held_ids) == (IN_DOUBT, 11.0, ["2/again"])


@pytest.mark.parametrize("start", [probed, probed_in_doubt])
def test_after_a_possibly_stale_redelivery_its_key_returns_only_one_message_to_the_server(
    start: type[Key],
) -> None:
    key = start()
    key.get("4/again", may_be_stale=True)
    assert key.state is IN_DOUBT
    key.accept("1", "2")
    assert len(key.end_wait().to_return) == 1
    assert key.state is PROBED


def test_on_a_redelivery_earlier_waiting_messages_of_its_key_are_returned_to_the_server() -> None:
    key = Key("1", "2")
    key.now = READER_DELAY
    assert ids(key.get("2/again").to_return) == ["1"]
    assert (key.state, key.due, key.held_ids) == (IN_DOUBT, 60.0, ["2/again"])
    key.accept("1")
    assert (key.state, key.due) == (IN_DOUBT, READER_DELAY + 1.0)


def test_despite_an_unanswered_nack_a_redelivery_returns_earlier_messages_to_the_server() -> None:
    key = Key("1", "2", comes_at=None)
    key.lose("3")
    key.accept("0")
    key.now = READER_DELAY
    assert ids(key.get("2/again").to_return) == ["1"]
    assert (key.state, key.due) == (IN_DOUBT, None)


def test_a_failed_key_that_returned_messages_returns_the_rest_after_its_redelivery_wait() -> None:
    """The key gives up because it has probed already."""
    key = probed_in_doubt()
    key.accept("2")
    assert key.due == key.now + 1.0
    key.now += READER_DELAY
    assert ids(key.get("4/again").to_return) == ["3/again"]
    assert key.state is PROBED_IN_DOUBT
    key.accept("3/again")
    assert ids(key.end_wait().to_return) == ["4/again"]
    assert key.state is GAVE_UP


def test_returning_messages_to_the_server_does_not_prolong_the_wait_of_a_stale_redelivery() -> None:
    key = Key("1", "2", "3")
    key.get("2/again", may_be_stale=True)
    key.now = READER_DELAY
    assert ids(key.get("3/again").to_return) == ["1", "2/again"]
    assert (key.state, key.due) == (IN_DOUBT, 1.0)


def test_after_a_redelivery_wait_a_redelivery_of_the_key_begins_no_second_wait() -> None:
    key = Key("1", "2")
    key.make_room()
    key.accept("1", "2")
    # Unhandled messages of a list are held again.
    key.keep("3")
    handle(key, "4")
    key.now = READER_DELAY
    assert sorted(ids(key.get("4/again").to_return)) == ["3", "4/again"]
    assert (key.state, key.due) == (GAVE_UP, None)


def test_only_the_newest_delivery_is_returned_to_the_server_after_a_redelivery_wait() -> None:
    key = Key()
    key.make_room()
    key.keep("1", "2")
    key.now = READER_DELAY
    actions = key.get("2/again")
    assert (ids(actions.to_return), ids(actions.forget)) == (["1", "2/again"], ["2"])
    assert len(key) == 0


def test_a_redelivery_after_all_nack_answers_does_not_wait_for_earlier_failed_messages() -> None:
    key = Key("1")
    key.now = READER_DELAY
    assert ids(key.get("1/again").forget) == ["1"]
    assert (key.state, key.due, key.nacks) == (IN_ORDER, None, {})
    assert key.run().ack_id == "1/again"


def test_a_second_redelivery_ends_the_wait_for_failed_messages_between_both_redeliveries() -> None:
    key = Key()
    key.lose("1")
    key.accept("1")
    key.keep("2")
    key.get("0/again")
    key.now = READER_DELAY
    key.get("2/again")
    assert (key.state, key.held_ids) == (IN_ORDER, ["0/again", "2/again"])


def test_the_list_of_failed_messages_of_a_new_ordering_key_is_empty() -> None:
    missing = MissingMessages("k", {})
    assert (len(missing), missing.first, missing.latest) == (0, None, -math.inf)


def test_a_message_received_twice_counts_as_a_redelivery_and_ends_the_wait_of_its_key() -> None:
    key = Key()
    key.get("1")
    key.now = READER_DELAY
    assert key.state is WAITING
    key.get("1/again")
    assert key.state is IN_ORDER


# ---- the length of the wait --------------------------------------------------------------------


def test_the_wait_for_a_redelivery_takes_a_minute_before_any_redelivery_was_measured() -> None:
    assert Redeliveries().wait(0.0) == 60.0


def test_the_wait_for_a_redelivery_is_three_times_the_slowest_of_the_last_twenty() -> None:
    redeliveries = Redeliveries()
    redeliveries.observe(100.0)
    for _ in range(19):
        redeliveries.observe(-math.inf)
    assert redeliveries.wait(0.0) == 300.0
    assert redeliveries.wait(200.0) == 600.0
    redeliveries.observe(0.0)
    assert redeliveries.wait(0.0) == 5.0
    assert redeliveries.wait(2.0) == 6.0


def test_only_the_time_to_redeliver_the_first_failed_message_of_a_key_is_measured() -> None:
    key = Key()
    key.lose("1")
    key.accept("1")
    key.now = 20.0
    key.get("1/again")
    assert key.redeliveries.wait(0.0) == 60.0
    key.get("0/again")
    assert key.redeliveries.wait(0.0) == 60.0
    assert key.redeliveries.wait(0.0) == 3 * 20.0


def test_a_redelivery_before_the_answer_to_its_nack_is_measured_as_taking_no_time() -> None:
    key = Key(comes_at=None)
    key.now = 20.0
    key.get("0/again")
    assert (key.redeliveries.wait(0.0), key.nacks) == (5.0, {})


@pytest.mark.parametrize("restart_keys", [False, True])
def test_a_new_message_shortens_the_redelivery_wait_only_if_servers_resend_later_messages(
    restart_keys: bool,
) -> None:
    key = Key(restart_keys=restart_keys)
    key.now = 10.0
    key.get("1")
    assert (key.state, key.due) == (WAITING, 11.0 if restart_keys else 60.0)
    # Only the first one, and it extends no wait.
    key.now = 10.5
    key.get("2")
    assert key.due == (11.0 if restart_keys else 60.0)


def test_a_new_message_of_a_failed_key_does_not_prolong_the_wait_for_a_redelivery() -> None:
    key = Key(restart_keys=True)
    key.now = 59.5
    key.get("1")
    assert key.due == 60.0


def test_the_wait_for_a_redelivery_begins_only_after_the_server_answered_the_nack() -> None:
    key = Key(comes_at=None, restart_keys=True)
    key.get("1")
    assert (key.state, key.due) == (NACKED, None)


def test_a_redelivery_does_not_shorten_the_nack_delay_of_an_earlier_message_of_its_key() -> None:
    key = Key(comes_at=None, restart_keys=True)
    key.lose("1")
    key.accept("0", "1", comes_at=50.0)
    key.get("1/again")
    assert (key.state, key.due) == (IN_DOUBT, 51.0)


# ---- failures ----------------------------------------------------------------------------------


def test_a_failure_of_a_delivery_that_was_already_returned_to_the_server_is_ignored() -> None:
    key = probed()
    key.accept("1")
    assert key.nacks == {}
    key.lose("1", at=0.0)
    key.lose("1/older", at=-1.0)
    assert (key.nacks, key.state) == ({}, PROBED)
    key.lose("1/again", at=1.0)
    assert key.nacks == {"1/again": "k"}


@pytest.mark.parametrize("at", [0.0, 1.0])
def test_a_waiting_delivery_joins_no_batch_after_an_older_one_of_the_same_message_failed(
    at: float,
) -> None:
    """Every message that has failed runs alone."""
    key = Key()
    key.keep("1/again", "2", at=at)
    assert key.lose("1") == Actions()
    assert (key.nacks, key.held_ids) == ({}, ["1/again", "2"])
    key.finish(run_redelivered(key))
    again = key.run()
    assert (again.ack_id, key.joining(again), key.join(again, 10)) == ("1/again", 0, [])


def test_a_held_delivery_is_dropped_when_a_newer_delivery_of_its_message_fails() -> None:
    key = Key("1", "2")
    assert ids(key.lose("1/again", at=1.0).forget) == ["1"]
    assert (key.nacks, key.held_ids) == ({"1/again": "k"}, ["2"])


def test_an_ordering_key_goes_on_if_a_failed_message_never_comes_again_after_a_lost_lease() -> None:
    """The redelivery of the message lost its lease before it ran."""
    key = Key()
    key.get("0/again")
    key.remove(key.held[0])
    key.lose("0/again", at=1.0)
    key.accept("0/again")
    key.get("1")
    key.now = READER_DELAY
    key.get("1/again")
    key.finish(key.run())
    assert key.is_over


def test_forgetting_a_failed_ordering_key_also_forgets_its_unanswered_nacks() -> None:
    key = Key(comes_at=None)
    key.lose("1")
    assert key.nacks == {"0": "k", "1": "k"}
    key.forget_nacks()
    assert key.nacks == {}


# ---- handled messages --------------------------------------------------------------------------


def test_the_redelivery_of_a_handled_message_ends_the_wait_for_earlier_failed_messages() -> None:
    key = Key()
    handle(key, "1")
    key.now = READER_DELAY
    assert ids(key.get("1/again").acknowledge) == ["1/again"]
    assert key.state is IN_ORDER


def test_the_held_delivery_of_an_already_handled_message_is_acknowledged() -> None:
    key = Key("1/again", "2")
    assert ids(handle(key, "1").acknowledge) == ["1/again"]
    assert key.held_ids == ["2"]


def test_handled_messages_are_no_longer_acked_on_redelivery_after_a_new_message_arrives() -> None:
    key = Key()
    key.finish(run_redelivered(key))
    handle(key, "1")
    assert not key.is_over
    key.get("2")
    assert key.is_over
    assert key.get("1/again").acknowledge == []


def test_handled_messages_are_acked_on_redelivery_despite_a_new_message_of_a_failed_key() -> None:
    key = Key()
    handle(key, "1")
    key.get("2")
    key.get("0/again")
    assert ids(key.get("1/again").acknowledge) == ["1/again"]


def test_handled_messages_are_acked_on_redelivery_while_a_message_of_their_key_waits() -> None:
    key = Key("2")
    handle(key, "1")
    key.get("0/again")
    key.get("3")
    assert ids(key.get("1/again").acknowledge) == ["1/again"]


# ---- turns -------------------------------------------------------------------------------------


def test_the_redelivery_of_a_message_handled_in_its_stale_delivery_is_acknowledged() -> None:
    """The failure is remembered until then."""
    key = Key("1", "2")
    key.finish(run_redelivered(key))
    old = key.run()
    assert (key.is_over, key.finish(old)) == (False, Actions())
    assert ids(key.get("1/again").acknowledge) == ["1/again"]


def test_handling_the_next_message_after_the_redelivered_one_ends_the_failure_of_its_key() -> None:
    key = Key()
    key.finish(run_redelivered(key))
    key.get("1")
    key.finish(key.run())
    assert key.is_over


def test_a_failed_ordering_key_recovers_when_its_last_stale_delivery_is_dropped() -> None:
    key = Key("1")
    key.finish(run_redelivered(key))
    old = key.run()
    assert not key.is_over
    key.finish(old, Disposition.DROP)
    assert key.is_over


def test_a_failed_ordering_key_recovers_without_redeliveries_of_earlier_handled_messages() -> None:
    key = Key("1")
    running = run_redelivered(key)
    key.lose("2")
    key.finish(running)
    key.finish(key.run())
    key.accept("2")
    key.get("2/again")
    key.finish(key.run())
    assert key.is_over


def test_a_redelivery_received_during_its_messages_callback_is_acked_after_the_callback() -> None:
    key = Key()
    running = run_redelivered(key)
    key.get("0/third")
    assert ids(key.finish(running).acknowledge) == ["0/third"]


def test_a_redelivered_message_that_was_not_handled_joins_no_batch_in_its_next_delivery() -> None:
    """The next delivery is held already when the turn of the message ends."""
    key = Key("1")
    running = run_redelivered(key)
    key.get("0/third")
    key.keep("1/again")
    key.finish(running, Disposition.DROP)
    again = key.run()
    assert (again.ack_id, key.joining(again)) == ("0/third", 0)
    key.finish(again)
    assert key.joining(key.run()) == 0


def test_messages_behind_a_failed_one_join_a_batch_only_after_the_failed_one_ran_again() -> None:
    key = Key("2", "3", "4")
    other = message("1", key="k")
    assert (key.joining(other), key.join(other, 2)) == (0, [])
    key.get("0/again")
    key.finish(key.run())
    assert key.joining(other) == 3
    assert ids(key.join(other, 2)) == ["2", "3"]
    assert key.held_ids == ["4"]


def test_a_failed_ordering_key_begins_no_message_while_another_message_of_the_key_runs() -> None:
    key = Key("1")
    key.get("0/again")
    assert key.run().ack_id == "0/again"
    assert key.next() is None


# ---- the held messages -------------------------------------------------------------------------


def test_a_message_is_parked_while_it_waits_for_the_redelivery_of_a_failed_message() -> None:
    key = Key("1")
    (held,) = key.held
    assert key.is_parked(held)
    assert not key.is_parked(message("1/again", key="k"))
    assert not key.is_parked(message("2", key="k"))
    assert (key.parked, key.parked_bytes) == (1, held.batch.bytes_each)
    key.get("0/again")
    assert not key.is_parked(held)
    assert (key.parked, key.parked_bytes) == (0, 0)


def test_an_ordering_key_without_held_or_running_messages_is_idle() -> None:
    key = Key("1")
    assert not key.is_idle
    key.make_room()
    assert key.is_idle
    key.get("0/again")
    key.run()
    assert (len(key), key.is_idle) == (0, False)


def test_flow_control_may_return_messages_that_wait_behind_a_failed_message_of_their_key() -> None:
    key = Key()
    assert not key.can_make_room
    key.keep("1")
    assert key.can_make_room
    key.get("0/again")
    assert not key.can_make_room


def test_removing_another_delivery_of_a_waiting_message_keeps_the_waiting_delivery() -> None:
    key = Key("1")
    key.remove(message("1/again", key="k"))
    key.remove(message("2", key="k"))
    assert key.held_ids == ["1"]
    key.remove(key.held[0])
    assert key.held_ids == []
