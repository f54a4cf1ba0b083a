"""The mailbox: kept messages, dropped messages, and exact reports of drops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_protocol.channels import ChannelLimits
from pullstream_protocol.channels.mailbox import EncodedEntry, Mailbox
from pullstream_protocol.messages import channels_pb2 as channels

ALL = 10_000


def item(seq: int, key: str = "a", size: int = 10) -> EncodedEntry:
    return EncodedEntry.of_message(seq, "c", key, b"\x0a" + bytes([size]) + b"x" * size)


def told(mailbox: Mailbox, max_items: int = ALL, max_bytes: int = 10**9) -> list[tuple[int, int]]:
    """Return number and count of drops of each item of a reply. The count of a message is 0."""
    parse = channels.PollResponse.Item.FromString
    items = [parse(each) for each in mailbox.next_items(max_items, max_bytes)]
    return [(each.seq, each.dropped) for each in items]


def filled(seqs: Sequence[int], **limits: int) -> Mailbox:
    mailbox = Mailbox(ChannelLimits(**limits))
    for seq in seqs:
        mailbox.add(item(seq))
    return mailbox


def test_acknowledged_messages_are_removed_from_the_channel_mailbox() -> None:
    """A message that is sent but not acknowledged stays."""
    mailbox = filled([1, 3, 5])
    assert told(mailbox) == [(1, 0), (3, 0), (5, 0)]
    mailbox.acknowledge(3)
    assert told(mailbox) == [(5, 0)]
    mailbox.acknowledge(5)
    assert (len(mailbox), mailbox.size, mailbox.has_news) == (0, 0, False)


def test_a_full_channel_mailbox_drops_its_oldest_messages_and_reports_their_number() -> None:
    mailbox = filled([1, 2, 3, 4], mailbox_items=2)
    assert told(mailbox) == [(2, 2), (3, 0), (4, 0)]
    assert told(mailbox) == [(2, 2), (3, 0), (4, 0)]
    mailbox.acknowledge(4)
    assert told(mailbox) == []


def test_a_channel_mailbox_does_not_report_acknowledged_messages_as_dropped() -> None:
    """The drop is reported only if the reply did not reach the reader."""
    mailbox = filled([1, 2], mailbox_items=2)
    assert told(mailbox) == [(1, 0), (2, 0)]
    mailbox.add(item(3))
    lost = filled([1, 2], mailbox_items=2)
    told(lost)
    lost.add(item(3))
    assert told(lost) == [(1, 1), (2, 0), (3, 0)]
    mailbox.acknowledge(2)
    assert told(mailbox) == [(3, 0)]


def test_a_channel_mailbox_keeps_the_newest_message_even_if_it_exceeds_the_byte_limit() -> None:
    mailbox = Mailbox(ChannelLimits(mailbox_bytes=300))
    mailbox.add(item(1))
    assert mailbox.add(item(2, size=120)) == 1
    assert told(mailbox) == [(1, 1), (2, 0)]


def test_a_channel_mailbox_reply_has_at_least_one_message_even_above_the_byte_limit() -> None:
    assert told(filled([1, 2]), max_bytes=1) == [(1, 0)]


def test_a_channel_mailbox_can_keep_only_the_newest_message_of_each_key() -> None:
    """The messages keep the order of publishing.

    A failure does not count as a message of its key.
    """
    mailbox = filled([])
    mailbox.keep_newest_only()
    for seq, key in enumerate("abac", start=1):
        mailbox.add(item(seq, key))
    mailbox.add(EncodedEntry.of_failure(5, "c", "a", "over"))
    assert told(mailbox) == [(2, 0), (3, 0), (4, 0), (5, 0)]
    mailbox.acknowledge(3)
    assert told(mailbox) == [(4, 0), (5, 0)]


def test_setting_keep_newest_only_drops_older_messages_already_in_the_channel_mailbox() -> None:
    """Commands that ask for it may come after the first poll."""
    mailbox = filled([1, 2, 3])
    mailbox.keep_newest_only()
    assert told(mailbox) == [(3, 0)]
    assert mailbox.size == item(3).size


@pytest.mark.parametrize("newest_only", [False, True])
@given(steps=st.lists(st.sampled_from(["add", "send", "lose", "acknowledge"]), max_size=40))
def test_every_message_of_a_channel_mailbox_is_received_or_reported_as_dropped(
    newest_only: bool, steps: list[str]
) -> None:
    """Replies and acknowledgements come in any order.

    With one kept message per key, a dropped message always has a newer one of its key.
    """
    mailbox = Mailbox(ChannelLimits(mailbox_items=3))
    if newest_only:
        mailbox.keep_newest_only()
    added = processed = dropped = 0
    received: list[int] = []
    for step in [*steps, "send", "acknowledge"]:
        if step == "add":
            added += 1
            mailbox.add(item(added, key="a" if newest_only else str(added)))
        elif step == "send":
            # A poll acknowledges the messages of the earlier ones.
            mailbox.acknowledge(processed)
            for seq, count in told(mailbox):
                if seq > processed:
                    processed = seq
                    dropped += count
                    received += [] if count else [seq]
        elif step == "lose":
            mailbox.acknowledge(processed)
            told(mailbox)
        else:
            mailbox.acknowledge(processed)
    assert received == sorted(set(received))
    if newest_only:
        assert received[-1:] == ([added] if added else [])
    else:
        assert len(received) + dropped == added
    assert len(mailbox) == mailbox.size == 0
