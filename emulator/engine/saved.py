"""What an engine is rebuilt from: the state as storage kept it, in plain values.

Storage learns all of it through an Observer. `Engine.restore` takes it back.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from protocol.messages import pubsub_pb2 as pubsub

if TYPE_CHECKING:
    from .record import Record
    from .topic import Topic

# Of a snapshot's value: `since`, and how long its settings and its subscription's name are.
_HEAD = struct.Struct("<QQQ")


@dataclass
class SavedTopic:
    """One life of a topic: what was published to it between its creation and its deletion.

    head_seq: the highest sequence number that it ever gave, also when that message is long gone.
    records: sequence number and encoded message of everything kept, in ascending order.
    value: what `saved` told last; empty once the topic was deleted. Then it is of use only to the
        subscriptions and snapshots that had it. A topic made again under the name is another one.
    """

    head_seq: int
    records: Iterable[tuple[int, bytes]] = ()
    value: bytes = b""


@dataclass
class SavedSubscription:
    """A subscription and what it has not finished.

    value: what `saved` told last, a serialized pubsub.Subscription.
    topic: the topic that it was created on, whatever its settings say by now.
    since: head_seq of that topic when `saved` told of the subscription for the first time.
    unfinished: sequence number and failed attempts (`returned` tells them) of each message later
        than `since` that was not told as `finished`, or was told as `unfinished` after that.
    """

    value: bytes
    topic: SavedTopic
    since: int = 0
    unfinished: Iterable[tuple[int, int]] = ()


@dataclass
class SavedSnapshot:
    """value: what `saved` told last, see SnapshotValue. topic: the one that was its topic then."""

    value: bytes
    topic: SavedTopic


@dataclass
class SavedFeed:
    """A topic that is read as a log; the engine itself knows nothing of it.

    value, note: what `saved` and `noted` told last.
    """

    value: bytes
    note: bytes
    topic: SavedTopic


# Takes a feed back: its value and note, its topic, and the records of that, by number. It holds
# those that the feed has; the others are let go.
RestoreFeed = Callable[[bytes, bytes, "Topic", Mapping[int, "Record"]], None]


@dataclass
class Saved:
    """Everything. `generation` counts the restarts: it keeps ack ids from being given out twice."""

    topics: Sequence[SavedTopic] = field(default_factory=list)
    subscriptions: Sequence[SavedSubscription] = field(default_factory=list)
    snapshots: Sequence[SavedSnapshot] = field(default_factory=list)
    generation: int = 0
    feeds: Sequence[SavedFeed] = field(default_factory=list)


class SnapshotValue(NamedTuple):
    """A snapshot, whole: what `saved` tells of it is this, encoded.

    subscription: the one that it was taken of. The snapshot is of that one's topic, which may be
        deleted by then and have no name.
    since: head_seq of the topic when it was taken. All that was published later belongs to it.
    unacked: sequence numbers up to `since` that were not finished then.
    """

    config: pubsub.Snapshot
    subscription: str
    since: int
    unacked: Sequence[int]

    def encode(self) -> bytes:
        config, name = self.config.SerializeToString(), self.subscription.encode()
        runs = array("Q", _runs(self.unacked)).tobytes()
        return _HEAD.pack(self.since, len(config), len(name)) + config + name + runs

    @staticmethod
    def decode(value: bytes) -> SnapshotValue:
        since, config_size, name_size = _HEAD.unpack_from(value)
        name_at = _HEAD.size + config_size
        runs_at = name_at + name_size
        config = pubsub.Snapshot.FromString(value[_HEAD.size : name_at])
        subscription = value[name_at:runs_at].decode()
        runs = array("Q")
        runs.frombytes(value[runs_at:])
        unacked = [
            s for first, end in zip(runs[::2], runs[1::2], strict=True) for s in range(first, end)
        ]
        return SnapshotValue(config, subscription, since, unacked)


def _runs(seqs: Iterable[int]) -> Iterable[int]:
    """First and end of each run of consecutive numbers: a backlog is made of few of them."""
    first = end = 0
    for seq in sorted(seqs):
        if seq != end:
            if end:
                yield from (first, end)
            first = seq
        end = seq + 1
    if end:
        yield from (first, end)
