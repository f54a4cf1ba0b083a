"""Copies of a source's messages for routers. Parts common to several copies are encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pullstream_emulator.engine.record import complete
from pullstream_protocol.filter import Filter
from pullstream_protocol.messages import pubsub_pb2 as pubsub

if TYPE_CHECKING:
    from pullstream_emulator.engine import Record

NODE = "node"
TAG = "tag"

# Attribute that counts how often a message was forwarded. Only copies on a cycle have it.
HOPS = "pullstream-hops"

# A cycle does not forward a message that was forwarded this many times.
MAX_HOPS = 8


class CopyForm(NamedTuple):
    """Selection and form of a router's copies. Routers with equal forms make equal copies.

    Attributes:
        filter: Filter expression; empty copies every message.
        keeps_node: Copies keep the attribute `node`.
        keeps_tag: Copies keep the attribute `tag`.
        counts_hops: Copies count how often they were forwarded, because the router is on a cycle.
    """

    filter: str = ""
    keeps_node: bool = True
    keeps_tag: bool = True
    counts_hops: bool = False


class CopyBatch:
    """Consecutive messages of a source, for all routers that have to copy them.

    Each copy has its own sequence number and publish time. Everything else is shared between
    copies: messages are selected and encoded once for each form, and the number and time are
    appended to the encoded bytes. (Parts of a message may be encoded separately, because protobuf
    merges them.) Destinations that assign the same numbers at the same time also share the final
    bytes. This is the case for destinations that are fed by the same source only.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.first = records[0].seq
        self.last = records[-1].seq
        self.records = records
        self._messages: Sequence[pubsub.PubsubMessage] = ()
        self._chosen: dict[CopyForm, ChosenRecords] = {}

    def chosen(self, form: CopyForm, accepts: Filter | None) -> ChosenRecords:
        """Return the messages that a form copies.

        Args:
            form: The form of the copies.
            accepts: The compiled filter of the form. None accepts every message.
        """
        chosen = self._chosen.get(form)
        if chosen is None:
            if not self._messages:
                self._messages = [record.message() for record in self.records]
            chosen = self._chosen[form] = _choose(self.records, self._messages, form, accepts)
        return chosen


class CopyBatches:
    """Batches read from sources in one turn. Routers at the same position share a batch."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int, int], CopyBatch] = {}

    def make_batch(self, source: str, records: Sequence[Record]) -> CopyBatch:
        """Return the batch for records of a source's window; create it on first use."""
        key = (source, records[0].seq, records[-1].seq, len(records))
        batch = self._known.get(key)
        if batch is None:
            batch = self._known[key] = CopyBatch(records)
        return batch


class ChosenRecords:
    """The messages of a batch that one form copies.

    Attributes:
        seqs: Their sequence numbers in the source.
        keys: Their ordering keys.
        bodies: The encoded messages, without sequence number and publish time.
    """

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.keys: list[str] = []
        self.bodies: list[bytes] = []
        self._stamped: dict[tuple[int, int, int], Sequence[bytes]] = {}

    def __len__(self) -> int:
        return len(self.seqs)

    def add(self, record: Record, body: bytes) -> None:
        """Add the copy of a record that follows all earlier ones in the source."""
        self.seqs.append(record.seq)
        self.keys.append(record.ordering_key)
        self.bodies.append(body)

    def stamped(self, count: int, first_seq: int, publish_ms: int) -> Sequence[bytes]:
        """Return the first messages, fully encoded for a destination.

        Args:
            count: Number of messages.
            first_seq: Sequence number of the first message.
            publish_ms: Publish time of all of them, in milliseconds since the epoch.
        """
        key = (count, first_seq, publish_ms)
        copies = self._stamped.get(key)
        if copies is None:
            copies = self._stamped[key] = complete(self.bodies[:count], first_seq, publish_ms)
        return copies


def _choose(
    records: Sequence[Record],
    messages: Sequence[pubsub.PubsubMessage],
    form: CopyForm,
    accepts: Filter | None,
) -> ChosenRecords:
    chosen = ChosenRecords()
    for record, message in zip(records, messages, strict=True):
        if accepts is not None and not accepts(message.attributes):
            continue
        hops = _hops(message) + 1
        if form.counts_hops and hops > MAX_HOPS:
            continue
        body = pubsub.PubsubMessage(
            data=message.data, attributes=message.attributes, ordering_key=message.ordering_key
        )
        if not form.keeps_node:
            body.attributes.pop(NODE, None)
        if not form.keeps_tag:
            body.attributes.pop(TAG, None)
        if form.counts_hops:
            body.attributes[HOPS] = str(hops)
        else:
            body.attributes.pop(HOPS, None)
        chosen.add(record, body.SerializeToString())
    return chosen


def _hops(message: pubsub.PubsubMessage) -> int:
    """Return a message's hop count. A publisher may send any value; count invalid ones as 0."""
    text = message.attributes.get(HOPS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) == 1 else 0
