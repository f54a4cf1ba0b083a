"""Messages that wait for receipts: their release, their loss, and their order."""

from hypothesis import given
from hypothesis import strategies as st

from pullstream.message import Message
from pullstream.streaming.receipts import ReceiptGate
from tests.subscriber.streaming.fakes import ids, message


def group(*ack_ids: str) -> list[Message]:
    return [message(ack_id) for ack_id in ack_ids]


def shown(released: list[tuple[list[Message], bool]]) -> list[tuple[list[str], bool]]:
    return [(ids(messages), in_order) for messages, in_order in released]


def test_an_exactly_once_response_is_released_when_all_its_receipts_are_confirmed() -> None:
    """The response is released as a whole, in any order of the answers."""
    gate = ReceiptGate()
    gate.hold_messages(group("a", "b", "c"), in_order=True)
    assert gate.record_answer(["b"], []) == ([], [])
    assert len(gate) == 3
    assert gate.record_answer(["c"], []) == ([], [])
    released, lost = gate.record_answer(["a"], [])
    assert (shown(released), lost, len(gate)) == ([(["a", "b", "c"], True)], [], 0)


def test_only_the_message_whose_exactly_once_receipt_is_refused_is_dropped() -> None:
    """The other messages do not wait for the lost one."""
    gate = ReceiptGate()
    first, second, third = group("a", "b", "c")
    gate.hold_messages([first, second, third], in_order=False)
    released, lost = gate.record_answer(["a"], ["b"])
    assert (released, lost) == ([], [second])
    released, lost = gate.record_answer(["c"], {})
    assert (released, lost) == ([([first, third], False)], [])


def test_an_exactly_once_response_with_only_refused_receipts_releases_no_message() -> None:
    """No empty response is released, and later responses are not blocked."""
    gate = ReceiptGate()
    gate.hold_messages(group("a", "b"), in_order=True)
    gate.hold_messages(group("c"), in_order=True)
    released, lost = gate.record_answer(["c"], ["a", "b"])
    assert (shown(released), ids(lost), len(gate)) == ([(["c"], True)], ["a", "b"], 0)


def test_an_exactly_once_response_without_ordering_keys_waits_only_for_its_own_receipts() -> None:
    """A late or repeated answer delays no other response."""
    gate = ReceiptGate()
    gate.hold_messages(group("a"), in_order=False)
    gate.hold_messages(group("b"), in_order=False)
    released, _ = gate.record_answer(["b"], [])
    assert shown(released) == [(["b"], False)]
    released, _ = gate.record_answer(["a"], [])
    assert shown(released) == [(["a"], False)]


def test_an_exactly_once_response_with_keys_waits_for_the_receipts_of_earlier_responses() -> None:
    """A message must not overtake an unconfirmed one of its key."""
    gate = ReceiptGate()
    for ack_id in ("a", "b", "c"):
        gate.hold_messages(group(ack_id), in_order=True)
    assert gate.record_answer(["c"], []) == ([], [])
    assert gate.record_answer(["b"], []) == ([], [])
    released, _ = gate.record_answer(["a"], [])
    assert shown(released) == [(["a"], True), (["b"], True), (["c"], True)]


def test_the_answer_to_a_receipt_of_an_ack_id_in_two_responses_releases_both_responses() -> None:
    """A server may do this, and neither copy is left behind."""
    gate = ReceiptGate()
    gate.hold_messages(group("a", "a"), in_order=False)
    gate.hold_messages(group("a", "b"), in_order=False)
    released, lost = gate.record_answer(["a"], [])
    assert (shown(released), lost) == ([(["a", "a"], False)], [])
    released, lost = gate.record_answer(["a"], ["b"])
    assert (shown(released), ids(lost), len(gate)) == ([(["a"], False)], ["b"], 0)


def test_a_receipt_answer_for_an_unknown_ack_id_is_ignored() -> None:
    """For example, the answer comes a second time."""
    gate = ReceiptGate()
    gate.hold_messages(group("a"), in_order=True)
    assert gate.record_answer(["unknown"], ["stranger"]) == ([], [])
    assert len(gate) == 1


@given(
    in_order=st.booleans(),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    data=st.data(),
)
def test_each_message_is_released_in_order_or_dropped_once_when_its_receipt_is_answered(
    in_order: bool, sizes: list[int], data: st.DataObject
) -> None:
    """Answers come in any order. Responses are released whole and at once."""
    gate = ReceiptGate()
    groups = [[f"{number}/{place}" for place in range(size)] for number, size in enumerate(sizes)]
    for ack_ids in groups:
        gate.hold_messages(group(*ack_ids), in_order=in_order)
    everything = [ack_id for ack_ids in groups for ack_id in ack_ids]
    refused = set(data.draw(st.lists(st.sampled_from(everything), unique=True)))
    open_ids, out = set(everything), []
    order = data.draw(st.permutations(everything))
    while order:
        count = data.draw(st.integers(1, len(order)))
        answered, order = order[:count], order[count:]
        open_ids -= set(answered)
        released, lost = gate.record_answer(
            [i for i in answered if i not in refused], [i for i in answered if i in refused]
        )
        assert set(ids(lost)) == refused & set(answered)
        out += [ids(messages) for messages, _ in released]
        may_go = []
        for ack_ids in groups:
            if not open_ids & set(ack_ids):
                may_go.append([i for i in ack_ids if i not in refused])
            elif in_order:
                break
        expected = [ack_ids for ack_ids in may_go if ack_ids]
        assert out == expected if in_order else sorted(out) == sorted(expected)
    assert len(gate) == 0
