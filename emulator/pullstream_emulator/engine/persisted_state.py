"""Persisted state of an engine, as plain values.

Storage records it through an Observer. `Engine.restore` restores it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .seq_set import SeqSet, run_of

# Head of a snapshot's value: `since`, length of its settings, length of its subscription's name.
_HEAD = struct.Struct("<QQQ")


@dataclass
class SavedTopic:
    """One incarnation of a topic: the messages published between its creation and its deletion.

    A topic that is created again with the same name is a different SavedTopic.

    Attributes:
        head_seq: The highest sequence number ever used, even if that message is no longer kept.
        records: Sequence number and encoded message of every kept message, in ascending order.
        value: The last value of `Observer.saved`; empty if the topic was deleted. A deleted topic
            is kept for its subscriptions and snapshots only.
    """

    head_seq: int
    records: Iterable[tuple[int, bytes]] = ()
    value: bytes = b""


@dataclass
class SavedSubscription:
    """A subscription and its unfinished messages.

    Attributes:
        value: The last value of `Observer.saved`, a serialized pubsub.Subscription.
        topic: The topic that it was created on, even if its settings name no topic any more.
        since: `head_seq` of that topic at the first call of `Observer.saved` for the subscription.
        unfinished: Sequence number and failed attempts (see `Observer.returned`) of each message
            after `since` that is not finished. The last call for a message decides:
            `Observer.finished` or `Observer.unfinished`.
    """

    value: bytes
    topic: SavedTopic
    since: int = 0
    unfinished: Iterable[tuple[int, int]] = ()


@dataclass
class SavedSnapshot:
    """A snapshot.

    Attributes:
        value: The last value of `Observer.saved`, see SnapshotValue.
        topic: The topic of its subscription when it was created.
    """

    value: bytes
    topic: SavedTopic


@dataclass
class SavedFeed:
    """A feed: a topic that is read as a log. The engine itself does not use feeds.

    Attributes:
        value: The last value of `Observer.saved`.
        note: The last value of `Observer.noted`.
        topic: Its topic.
    """

    value: bytes
    note: bytes
    topic: SavedTopic


@dataclass
class Saved:
    """The whole persisted state of an engine.

    Attributes:
        topics: All topics.
        subscriptions: All subscriptions.
        snapshots: All snapshots.
        generation: Number of restarts. It ensures that no ack ID is used twice.
        feeds: All feeds.
    """

    topics: Sequence[SavedTopic] = field(default_factory=list)
    subscriptions: Sequence[SavedSubscription] = field(default_factory=list)
    snapshots: Sequence[SavedSnapshot] = field(default_factory=list)
    generation: int = 0
    feeds: Sequence[SavedFeed] = field(default_factory=list)


class SnapshotValue(NamedTuple):
    """A whole snapshot. `Observer.saved` gets it encoded.

    Attributes:
        config: Its settings.
        subscription: The subscription from which it was created. The snapshot belongs to the topic
            of that subscription, which may be deleted and then has no name.
        since: `head_seq` of the topic at its creation. All later messages belong to the snapshot.
        unacked: Sequence numbers up to `since` that were not finished at its creation.
    """

    config: pubsub.Snapshot
    subscription: str
    since: int
    unacked: SeqSet

    def encode(self) -> bytes:
        """Serialize the snapshot, with `unacked` as runs of consecutive numbers."""
        config, name = self.config.SerializeToString(), self.subscription.encode()
        runs = array("Q", chain.from_iterable(self.unacked.runs())).tobytes()
        return _HEAD.pack(self.since, len(config), len(name)) + config + name + runs

    @staticmethod
    def decode(value: bytes) -> SnapshotValue:
        """Return the snapshot that `encode` has serialized."""
        since, config_size, name_size = _HEAD.unpack_from(value)
        name_at = _HEAD.size + config_size
        runs_at = name_at + name_size
        config = pubsub.Snapshot.FromString(value[_HEAD.size : name_at])
        subscription = value[name_at:runs_at].decode()
        runs = array("Q")
        runs.frombytes(value[runs_at:])
        unacked = SeqSet()
        for first, end in zip(runs[::2], runs[1::2], strict=True):
            unacked.add(run_of(first, end))
        return SnapshotValue(config, subscription, since, unacked)
