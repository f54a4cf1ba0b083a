"""Keys of messages: two ids have the same key only if they are equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream.spark.protocol.message_keys import key_of, keys_of

# Ids that look like a number, to Python or to a reader, and ids of other forms.
IDS = st.one_of(
    st.integers(0).map(str),
    st.text("0123456789", max_size=4),
    st.text("01_+-. \n\u0661\u00b2ab", max_size=4),
    st.text(max_size=4),
)


@given(st.one_of(st.lists(IDS), st.lists(st.integers(1).map(str))))
def test_a_message_id_can_be_restored_from_the_compact_key_stored_for_it(
    message_ids: list[str],
) -> None:
    """Two different ids therefore have different keys."""
    assert [str(key) for key in keys_of(message_ids)] == message_ids


@given(st.lists(IDS, min_size=1), st.integers(1).map(str))
def test_a_message_id_gets_the_same_compact_key_in_every_batch(
    others: list[str], number: str
) -> None:
    """A redelivery comes together with other messages than the first time."""
    assert keys_of([*others, number])[-1] == keys_of([number])[0] == key_of(number) == int(number)
    assert keys_of(others) == [key_of(each) for each in others]


@pytest.mark.parametrize("message_id", ["", "0", "007", "1_000", " 1", "1\n", "\u0661", "9" * 5000])
def test_the_compact_key_of_a_message_id_that_is_no_number_is_its_text(message_id: str) -> None:
    assert keys_of([message_id, "5"]) == [message_id, 5]
