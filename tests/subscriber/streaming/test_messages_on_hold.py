"""Ordering keys at the client: one at a time, in order, and from the failed one on again."""

from subscriber.message import Message
from subscriber.streaming import messages_on_hold
from subscriber.streaming.messages_on_hold import MessagesOnHold
from tests.subscriber.streaming.fakes import ids, message


def keyed(*ack_ids: str, key: str = "k") -> list[Message]:
    """Messages of one key; what follows a slash tells one copy of a message from another."""
    return [message(ack_id, key=key) for ack_id in ack_ids]


def fail(hold: MessagesOnHold, message: Message) -> list[Message]:
    """A message fails, and its callback ends; returns what is to be nacked with it."""
    given_back = hold.failed(message)
    assert hold.ended(message) is None
    return given_back


def test_messages_without_a_key_always_run() -> None:
    """They are never held, and never two of one."""
    hold = MessagesOnHold()
    offered = hold.offer([message("1"), message("2")])
    assert (ids(offered.run), offered.refuse, len(hold)) == (["1", "2"], [], 0)


def test_one_message_of_a_key_runs_and_the_others_wait_in_order() -> None:
    """The end of each lets the next one go, and the last leaves nothing behind."""
    hold = MessagesOnHold()
    first, second, third = keyed("1", "2", "3")
    assert ids(hold.offer([first, second]).run) == ["1"]
    assert hold.offer([third]).run == []
    assert len(hold) == 2
    assert hold.ended(first) is second
    assert hold.ended(second) is third
    assert hold.ended(third) is None
    assert ids(hold.offer(keyed("4")).run) == ["4"]


def test_keys_do_not_wait_for_each_other() -> None:
    """A slow key holds up only itself."""
    hold = MessagesOnHold()
    offered = hold.offer([*keyed("1", "2", key="a"), *keyed("3", "4", key="b"), message("5")])
    assert ids(offered.run) == ["1", "3", "5"]


def test_a_failure_gives_back_what_is_held_behind_it() -> None:
    """The server will deliver all of it again, in order."""
    hold = MessagesOnHold()
    failing, *behind = keyed("1", "2", "3")
    hold.offer([failing, *behind])
    assert fail(hold, failing) == behind
    assert len(hold) == 0
    assert ids(hold.offer(keyed("1/again", "2/again")).run) == ["1/again"]
    assert len(hold) == 1


def test_a_failure_does_not_end_the_turn_of_a_message() -> None:
    """While its callback goes on nothing of its key begins, not even its own redelivery."""
    hold = MessagesOnHold()
    (failing,) = keyed("1")
    hold.offer([failing])
    hold.failed(failing)
    again, behind = keyed("1/again", "2/again")
    assert hold.offer([again, behind]).run == []
    assert len(hold) == 2
    assert hold.ended(failing) is again
    assert hold.ended(again) is behind


def test_a_failure_told_twice_counts_once() -> None:
    """By the worker and by whoever nacked: the second must not give back what has come again."""
    hold = MessagesOnHold()
    failing, held = keyed("1", "2")
    hold.offer([failing, held])
    assert hold.failed(failing) == [held]
    hold.offer(keyed("1/again", "2/again"))
    assert hold.failed(failing) == []
    assert len(hold) == 2


def test_a_message_that_fails_after_its_turn_takes_along_what_is_held_then() -> None:
    """Nacked late, while the next one runs: that one goes on, those behind it come again."""
    hold = MessagesOnHold()
    late, running, held = keyed("1", "2", "3")
    hold.offer([late, running, held])
    assert hold.ended(late) is running
    assert hold.failed(late) == [held]
    assert ids(hold.offer(keyed("4")).refuse) == ["4"]
    assert hold.ended(running) is None
    assert ids(hold.offer(keyed("1/again", "2/again")).run) == ["1/again"]


def test_what_comes_behind_a_missed_message_waits_for_it() -> None:
    """It was delivered here and is not ours: its key begins with its next delivery."""
    hold = MessagesOnHold()
    hold.missed([*keyed("1"), message("unordered")])
    assert ids(hold.offer(keyed("2")).refuse) == ["2"]
    assert ids(hold.offer([message("3"), *keyed("1/again", "2/again")]).run) == ["3", "1/again"]


def test_what_was_in_flight_at_a_failure_does_not_overtake_it() -> None:
    """It is refused until the failed message comes again, for however long that takes."""
    hold = MessagesOnHold()
    (failing,) = keyed("1")
    hold.offer([failing])
    fail(hold, failing)
    for ack_id in ("2", "3", "4"):
        offered = hold.offer(keyed(ack_id))
        assert (ids(offered.refuse), offered.run) == ([ack_id], [])
    offered = hold.offer(keyed("1/again", "2/again"))
    assert (ids(offered.run), offered.refuse, len(hold)) == (["1/again"], [], 1)


def test_a_second_copy_of_a_held_message_does_not_overtake_the_failed_one() -> None:
    """After a reconnect the messages of the broken stream and their copies are both on the way."""
    hold = MessagesOnHold()
    failing, *old = keyed("1/old", "2/old")
    hold.offer([failing, *old, *keyed("1/copy")])
    assert ids(fail(hold, failing)) == ["2/old", "1/copy"]
    assert ids(hold.offer(keyed("2/copy")).refuse) == ["2/copy"]
    assert ids(hold.offer(keyed("1/again")).run) == ["1/again"]


def test_a_failed_message_that_went_elsewhere_does_not_block_its_key() -> None:
    """Another subscriber handled it: the next one is refused once, and comes back."""
    hold = MessagesOnHold()
    (failing,) = keyed("1")
    hold.offer([failing])
    fail(hold, failing)
    assert ids(hold.offer(keyed("2")).refuse) == ["2"]
    assert ids(hold.offer(keyed("2/again")).run) == ["2/again"]


def test_the_key_does_not_begin_again_behind_a_message_that_was_just_refused() -> None:
    """0 failed and was handled elsewhere: now 1 comes first, and then 2, which came before."""
    hold = MessagesOnHold()
    failing, held = keyed("0", "1")
    hold.offer([failing, held])
    fail(hold, failing)
    for ack_id in ("2", "1/again", "2/again"):
        assert ids(hold.offer(keyed(ack_id)).refuse) == [ack_id]
    assert ids(hold.offer(keyed("1/third", "2/third")).run) == ["1/third"]
    assert len(hold) == 1


def test_the_order_of_a_key_is_remembered_over_two_failures() -> None:
    """1 lost its lease while 0 was running, which then failed too."""
    hold = MessagesOnHold()
    failing, held = keyed("0", "1")
    hold.offer([failing, held])
    hold.lost([held])
    fail(hold, failing)
    for ack_id in ("2", "1/again", "2/again"):
        assert ids(hold.offer(keyed(ack_id)).refuse) == [ack_id]
    assert ids(hold.offer(keyed("1/third")).run) == ["1/third"]


def test_a_refused_message_that_went_elsewhere_does_not_block_its_key_either() -> None:
    """As above, but 1 does not come a third time."""
    hold = MessagesOnHold()
    failing, held = keyed("0", "1")
    hold.offer([failing, held])
    fail(hold, failing)
    for ack_id in ("2", "1/again", "2/again"):
        hold.offer(keyed(ack_id))
    assert ids(hold.offer(keyed("2/third")).run) == ["2/third"]


def test_a_failure_in_one_key_is_nothing_to_the_others() -> None:
    """Nor to messages without a key."""
    hold = MessagesOnHold()
    (failing,) = keyed("1", key="a")
    hold.offer([failing])
    fail(hold, failing)
    offered = hold.offer([*keyed("2", key="a"), *keyed("3", key="b"), message("4")])
    assert (ids(offered.run), ids(offered.refuse)) == (["3", "4"], ["2"])


def test_suspicions_are_bounded() -> None:
    """Keys that fail and never come back are forgotten, the oldest first."""
    hold = MessagesOnHold()
    for number in range(messages_on_hold.MAX_SUSPICIONS + 1):
        (failing,) = keyed("1", key=str(number))
        hold.offer([failing])
        fail(hold, failing)
    assert ids(hold.offer(keyed("2", key="0")).run) == ["2"]
    assert ids(hold.offer(keyed("2", key="1")).refuse) == ["2"]


def test_a_held_message_that_lost_its_lease_is_held_no_more_nor_those_behind_it() -> None:
    """What is before it may still run; it comes again, and then those behind it."""
    hold = MessagesOnHold()
    first, second, third, fourth = keyed("1", "2", "3", "4")
    hold.offer([first, second, third, fourth])
    assert hold.lost([third]) == [third, fourth]
    assert hold.ended(first) is second
    assert hold.ended(second) is None
    assert ids(hold.offer(keyed("5")).refuse) == ["5"]
    assert ids(hold.offer(keyed("3/again", "4/again")).run) == ["3/again"]


def test_the_running_message_may_lose_its_lease() -> None:
    """Nothing is held on account of it, and its key goes on when it ends."""
    hold = MessagesOnHold()
    first, second = keyed("1", "2")
    hold.offer([first, second])
    assert hold.lost([first, message("unordered")]) == []
    assert hold.ended(first) is second


def test_after_giving_up_nothing_is_held_and_nothing_runs() -> None:
    """The shutdown takes all that is held, and a callback that ends brings in no other."""
    hold = MessagesOnHold()
    first, second = keyed("1", "2")
    hold.offer([first, second])
    assert hold.give_up() == [second]
    assert len(hold) == 0
    assert hold.ended(first) is None
    assert hold.failed(first) == []
    offered = hold.offer([message("3"), *keyed("4")])
    assert (offered.run, ids(offered.refuse)) == ([], ["3", "4"])
