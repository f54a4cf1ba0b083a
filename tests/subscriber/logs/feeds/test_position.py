"""Start positions in a feed."""

from __future__ import annotations

from typing import Any

import pytest

from pullstream.logs.feeds.position import position_of
from pullstream_protocol.messages import feeds_pb2 as feeds

TOPIC = "projects/p/topics/orders"


@pytest.mark.parametrize(
    ("start", "position"),
    [
        ("tail", feeds.Position(tail=True)),
        (0, feeds.Position(after_seq=0)),
        (2**63 - 1, feeds.Position(after_seq=2**63 - 1)),
        (feeds.Position(after_seq=7, epoch=2), feeds.Position(after_seq=7, epoch=2)),
        (feeds.Cursor(topic=TOPIC, seq=7, epoch=2), feeds.Position(after_seq=7, epoch=2)),
        (feeds.Cursor(seq=7), feeds.Position(after_seq=7)),
    ],
)
def test_a_feed_position_can_be_given_as_a_number_a_word_a_cursor_or_a_position_object(
    start: Any, position: feeds.Position
) -> None:
    """A cursor also identifies the topic."""
    assert position_of(start, TOPIC) == position


@pytest.mark.parametrize(
    ("start", "error", "text"),
    [
        ("head", TypeError, "the start position is 'head'"),
        (True, TypeError, "the start position is True"),
        (1.0, TypeError, "the start position is 1.0"),
        (-1, ValueError, "the start position is -1; it must be between 0 and"),
        (2**63, ValueError, "it must be between 0 and"),
        (feeds.Cursor(topic="projects/p/topics/b"), ValueError, "it must be a cursor of"),
    ],
)
def test_the_error_for_an_invalid_feed_position_states_the_allowed_forms(
    start: Any, error: type[Exception], text: str
) -> None:
    """The error shows the value and the allowed form."""
    with pytest.raises(error, match=text):
        position_of(start, TOPIC)
