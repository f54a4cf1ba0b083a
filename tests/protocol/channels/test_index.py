"""The index of subscribers by key and by channel."""

from __future__ import annotations

from pullstream_protocol.channels.index import Index


def test_the_channel_index_finds_subscribers_of_a_key_and_of_the_whole_channel() -> None:
    """Each subscriber is returned once, those of the key first."""
    index: Index[str] = Index()
    index.add("one", ("c", "a"))
    index.add("two", ("c", None))
    index.add("one", ("c", None))
    index.add("three", ("c", "b"))
    assert list(index.of_key("c", "a")) == ["one", "two"]
    assert list(index.of_key("c", "z")) == ["two", "one"]
    assert list(index.of_key("d", "a")) == []
    assert index.only_key("c", "a") == ["one"]
    assert sorted(index.of_channel("c")) == ["one", "three", "two"]


def test_adding_present_or_removing_missing_entries_leaves_the_channel_index_unchanged() -> None:
    index: Index[str] = Index()
    index.add("one", ("c", "a"))
    index.add("one", ("c", "a"))
    index.remove("two", ("c", "a"))
    index.remove("one", ("c", "b"))
    index.remove("one", ("d", "a"))
    assert list(index.of_key("c", "a")) == ["one"]
    assert len(index) == 1


def test_the_channel_index_keeps_no_empty_entries() -> None:
    """The entries for the key and the channel are removed."""
    index: Index[str] = Index()
    for interest in (("c", "a"), ("c", None), ("d", "a")):
        index.add("one", interest)
    for interest in (("c", "a"), ("c", None)):
        index.remove("one", interest)
    assert ("c" in index, "d" in index, len(index)) == (False, True, 1)
    index.remove("one", ("d", "a"))
    assert len(index) == 0
