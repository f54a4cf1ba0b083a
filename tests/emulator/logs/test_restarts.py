"""Model test of feeds and routers over restarts and crashes, which readers do not notice."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pullstream_emulator.broker import Broker
from pullstream_emulator.engine.settings.durability import Durability
from pullstream_emulator.logs.forwarder import RETRY
from pullstream_emulator.storage.storage import Storage
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import FailedPrecondition
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.crash import copy_running
from tests.emulator.quick_disk import QUICK_DISK

PROJECT = "projects/p"
TOPICS = [f"{PROJECT}/topics/{name}" for name in ("source", "copy", "copy-of-copy")]
NAMES = st.sampled_from(TOPICS)

# The result for a reader: the numbers of messages, and the range and reason of a gap.
Answer = tuple[list[tuple[str, bytes]], tuple[int, int, int] | None]


class Restarts(RuleBasedStateMachine):
    """A source, a copy of it, and a copy of the copy, with durability class fsync."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.folder = Path(tempfile.mkdtemp(dir=QUICK_DISK))
        self.runs = 0
        self.sent = 0
        self.broker = self.begin()
        for source, dest in itertools.pairwise(TOPICS):
            self.put(source, 0, 0, rejects=False)
            router = feeds.Router(name=dest.replace("topics", "routers"), source=source, dest=dest)
            self.broker.call("PutRouter", feeds.PutRouterRequest(router=router))

    def begin(self) -> Broker:
        storage = Storage(self.folder / str(self.runs), Durability.FSYNC)
        broker = Broker(self.clock, storage=storage)
        broker.dependents.routers.work()
        return broker

    def teardown(self) -> None:
        self.broker.close()
        shutil.rmtree(self.folder)

    @rule(
        topic=NAMES,
        cap=st.sampled_from([0, 1, 3, 6]),
        ttl=st.sampled_from([0, 0, 500]),
        rejects=st.booleans(),
    )
    def put(self, topic: str, cap: int, ttl: int, rejects: bool) -> None:
        config = feeds.FeedConfig(cap_records=cap, discard=feeds.REJECT if rejects else feeds.OLD)
        config.ttl.FromMilliseconds(ttl)
        self.broker.call("PutFeed", feeds.PutFeedRequest(topic=topic, config=config))

    @rule(topic=NAMES, count=st.integers(1, 5))
    def append(self, topic: str, count: int) -> None:
        messages = []
        for _ in range(count):
            self.sent += 1
            parity = str(self.sent % 2)
            messages.append(
                pubsub.PubsubMessage(data=str(self.sent).encode(), attributes={"parity": parity})
            )
        try:
            self.broker.call("Append", feeds.AppendRequest(topic=topic, messages=messages))
        except FailedPrecondition:
            return

    @rule(topic=NAMES, behind=st.integers(0, 4), parity=st.sampled_from(["", "0", "1"]))
    def delete(self, topic: str, behind: int, parity: str) -> None:
        if topic in self.broker.engine.registry.topics:
            request = feeds.DeleteMessagesRequest(
                topic=topic,
                before_seq=max(1, self.broker.feeds.feed(topic).head - behind),
                filter=f'attributes.parity = "{parity}"' if parity else "",
            )
            self.broker.call("DeleteMessages", request)

    @rule(topic=NAMES)
    def make_again(self, topic: str) -> None:
        """Delete a topic with its routers, and create it again."""
        if topic in self.broker.engine.registry.topics:
            self.broker.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=topic))
            self.put(topic, 3, 0, rejects=False)

    @rule(seconds=st.sampled_from([0.2, 0.6]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.engine.advance()

    @rule()
    def restart(self) -> None:
        """Restart the broker, and check that its state is unchanged."""
        self.let_routers_try()
        answers, routers = self.answers(), self.routers()
        heads = {topic: feed.head_seq for topic, feed in self.all_feeds().items()}
        self.broker.close()
        self.broker = self.begin()
        assert {topic: feed.head_seq for topic, feed in self.all_feeds().items()} == heads
        assert self.answers() == answers
        assert self.routers() == routers

    @rule()
    def crash(self) -> None:
        """Check the same after a crash. Skipped numbers may be reported as part of a gap."""
        self.let_routers_try()
        answers, routers = self.answers(), self.routers()
        assert self.broker.storage is not None
        self.broker.storage.flush()
        old, new = (self.folder / str(self.runs + run) for run in (0, 1))
        copy_running(old, new)
        self.broker.close()
        self.runs += 1
        self.broker = self.begin()
        for at, (messages, gap) in answers.items():
            messages_after, gap_after = self.read(*at)
            assert messages_after == messages
            assert (gap_after is None) == (gap is None)
            if gap is not None and gap_after is not None:
                assert (gap_after[0], gap_after[2]) == (gap[0], gap[2])
                assert gap_after[1] == gap[1] or not messages
        assert [(r.name, r.forwarded) for r in self.routers()] == [
            (r.name, r.forwarded) for r in routers
        ]

    def let_routers_try(self) -> None:
        """Let waiting routers retry, as the next broker does at once.

        They may have a gap to report.
        """
        self.advance(RETRY)

    def all_feeds(self) -> dict[str, feeds.Feed]:
        request = feeds.ListFeedsRequest(project=PROJECT)
        return {feed.topic: feed for feed in self.broker.call("ListFeeds", request).feeds}

    def routers(self) -> list[feeds.Router]:
        request = feeds.ListRoutersRequest(project=PROJECT)
        return list(self.broker.call("ListRouters", request).routers)

    def answers(self) -> dict[tuple[str, int], Answer]:
        """Return the result for a reader at each number, by topic and number."""
        found = {}
        self.epochs = {topic: feed.epoch for topic, feed in self.all_feeds().items()}
        for topic in self.epochs:
            known = [record.seq for record in self.broker.feeds.feed(topic).records()]
            lost = [each.last for each in self.broker.feeds.feed(topic).lost]
            newest = max([0, *known, *lost])
            for seq in range(max(0, newest - 40), newest + 1):
                found[topic, seq] = self.read(topic, seq)
        return found

    def read(self, topic: str, seq: int) -> Answer:
        start = feeds.Position(after_seq=seq, epoch=self.epochs[topic])
        answer = self.broker.feeds.read(feeds.ReadRequest(topic=topic, start=start))
        messages = [pubsub.PubsubMessage.FromString(each) for each in answer.messages]
        gap = answer.gap
        reported = (gap.from_seq, gap.to_seq, gap.reason) if answer.HasField("gap") else None
        return [(message.message_id, message.data) for message in messages], reported


Restarts.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestRestarts = Restarts.TestCase
