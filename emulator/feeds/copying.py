"""Copies of a source's messages: what they have in common is encoded once, for all routers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from emulator.engine.filter import Filter
from protocol.messages import pubsub_pb2 as pubsub

if TYPE_CHECKING:
    from emulator.engine import Record

NODE = "node"
TAG = "tag"

# How often a message was forwarded; its copies carry this attribute on a cycle, and only there.
HOPS = "pullstream-hops"

# What a cycle forwards no further.
MAX_HOPS = 8


class Form(NamedTuple):
    """Which messages a router copies, and how. Routers of equal forms make equal copies."""

    filter: str = ""
    keeps_node: bool = True
    keeps_tag: bool = True
    counts_hops: bool = False


class Batch:
    """Consecutive messages of a source, for all routers that have to copy them.

    A copy has a number and a time of its own. All else it shares with the others: they are chosen
    and encoded once for each form, and the number and time are put behind it. (Parts of a message
    may be encoded one by one: protobuf merges them.) Where destinations give the same numbers at
    the same time, which those do that are fed by the same source only, the bytes are shared too.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.first = records[0].seq
        self.last = records[-1].seq
        self.records = records
        self._messages: Sequence[pubsub.PubsubMessage] = ()
        self._chosen: dict[Form, Chosen] = {}

    def chosen(self, form: Form, accepts: Filter | None) -> Chosen:
        """The messages that a form copies; `accepts` is its filter, None lets all pass."""
        chosen = self._chosen.get(form)
        if chosen is None:
            if not self._messages:
                self._messages = [record.message() for record in self.records]
            chosen = self._chosen[form] = _choose(self.records, self._messages, form, accepts)
        return chosen


class Batches:
    """What is read from sources in one turn: routers that are equally far share a batch."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int, int], Batch] = {}

    def of(self, source: str, records: Sequence[Record]) -> Batch:
        """A batch of records of a source's window."""
        key = (source, records[0].seq, records[-1].seq, len(records))
        batch = self._known.get(key)
        if batch is None:
            batch = self._known[key] = Batch(records)
        return batch


class Chosen:
    """The messages of a batch that one form copies: their numbers in the source, and the rest.

    bodies: encoded, without number and time.
    """

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.keys: list[str] = []
        self.bodies: list[bytes] = []
        self._stamped: dict[tuple[int, int, int], Sequence[bytes]] = {}

    def __len__(self) -> int:
        return len(self.seqs)

    def add(self, record: Record, body: bytes) -> None:
        self.seqs.append(record.seq)
        self.keys.append(record.ordering_key)
        self.bodies.append(body)

    def stamped(self, count: int, first_seq: int, publish_ms: int) -> Sequence[bytes]:
        """The first ones, encoded whole, numbered from `first_seq`."""
        key = (count, first_seq, publish_ms)
        copies = self._stamped.get(key)
        if copies is None:
            copies = self._stamped[key] = _stamp(self.bodies[:count], first_seq, publish_ms)
        return copies


def _choose(
    records: Sequence[Record],
    messages: Sequence[pubsub.PubsubMessage],
    form: Form,
    accepts: Filter | None,
) -> Chosen:
    chosen = Chosen()
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
    """A publisher may have sent anything under that name; what is no number of ours counts 0."""
    text = message.attributes.get(HOPS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) == 1 else 0


def _stamp(bodies: Sequence[bytes], first_seq: int, publish_ms: int) -> Sequence[bytes]:
    time = Timestamp(seconds=publish_ms // 1000, nanos=publish_ms % 1000 * 1_000_000)
    stamp = pubsub.PubsubMessage(publish_time=time)
    encode = stamp.SerializeToString
    copies = []
    for seq, body in enumerate(bodies, first_seq):
        stamp.message_id = str(seq)
        copies.append(body + encode())
    return copies
