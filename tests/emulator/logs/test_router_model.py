"""Model test of routers: copies are in order and unique, and every loss is reported."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pullstream_emulator.broker import Broker
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import FailedPrecondition
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub

GAP = -1
# Marks a record that was not appended to the source.
OTHER = -2

SOURCE = "projects/p/topics/source"
# The destinations with their sources. The third one is fed by the first, as a chain.
DESTS = {"first": SOURCE, "second": SOURCE, "third": "projects/p/topics/first"}


def topic(name: str) -> str:
    return f"projects/p/topics/{name}"


class Routing(RuleBasedStateMachine):
    """A source, two destinations, and one after the first. Each has its own limits."""

    @initialize(dest_caps=st.lists(st.integers(1, 6), min_size=3, max_size=3))
    def begin(self, dest_caps: list[int]) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        self.sent = 0
        # The records that a reader of each destination has received, with GAP for each gap. The
        # list starts with 0, no record of the source.
        self.got: dict[str, list[int]] = {name: [0] for name in DESTS}
        self.at = dict.fromkeys(DESTS, 0)
        self.put("source", 5, rejects=False)
        for name, cap in zip(DESTS, dest_caps, strict=True):
            self.put(name, cap, rejects=True)
            router = feeds.Router(
                name=f"projects/p/routers/to-{name}", source=DESTS[name], dest=topic(name)
            )
            self.broker.call("PutRouter", feeds.PutRouterRequest(router=router))

    def put(self, name: str, cap: int, *, rejects: bool) -> None:
        config = feeds.FeedConfig(cap_records=cap, discard=feeds.REJECT if rejects else feeds.OLD)
        request = feeds.PutFeedRequest(topic=topic(name), config=config)
        self.broker.call("PutFeed", request)

    @rule(count=st.integers(1, 8))
    def append(self, count: int) -> None:
        messages = []
        for _ in range(count):
            self.sent += 1
            messages.append(pubsub.PubsubMessage(data=str(self.sent).encode()))
        request = feeds.AppendRequest(topic=SOURCE, messages=messages)
        self.broker.call("Append", request)

    @rule(name=st.sampled_from(sorted(DESTS)), cap=st.integers(1, 8), rejects=st.booleans())
    def configure(self, name: str, cap: int, rejects: bool) -> None:
        """Change the limits or the policy of a topic."""
        self.put(name, cap, rejects=rejects)

    @rule(name=st.sampled_from(sorted(DESTS)), limit=st.integers(1, 10))
    def read(self, name: str, limit: int) -> None:
        """Read all available records, and delete them to make room."""
        position = feeds.Position(after_seq=self.at[name])
        request = feeds.ReadRequest(topic=topic(name), start=position, max_messages=limit)
        answer = self.broker.feeds.read(request)
        if answer.HasField("gap"):
            gap = answer.gap
            assert gap.from_seq == self.at[name] + 1
            assert gap.reason != feeds.RECREATED
            self.got[name].append(GAP)
        for encoded in answer.messages:
            number = int(pubsub.PubsubMessage.FromString(encoded).data)
            if number != OTHER:
                self.got[name].append(number)
        self.at[name] = answer.next_seq
        done = answer.next_seq
        if name == "first":
            # Records that were deleted on purpose are not copied, and are no gap.
            done = min(done, self.router("third").position)
        if done:
            delete = feeds.DeleteMessagesRequest(topic=topic(name), before_seq=done + 1)
            self.broker.call("DeleteMessages", delete)

    def router(self, name: str) -> feeds.Router:
        state = self.broker.call(
            "GetRouter", feeds.GetRouterRequest(name=f"projects/p/routers/to-{name}")
        )
        assert isinstance(state, feeds.Router)
        return state

    @rule(seconds=st.sampled_from([0.01, 0.2]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.engine.advance()

    @rule(name=st.sampled_from(sorted(DESTS)))
    def publish_into(self, name: str) -> None:
        """Publish to a destination of a router. The publish is refused when the topic is full."""
        message = pubsub.PubsubMessage(data=str(OTHER).encode())
        try:
            self.broker.call("Append", feeds.AppendRequest(topic=topic(name), messages=[message]))
        except FailedPrecondition:
            return

    @invariant()
    def copies_are_in_order_and_no_loss_is_silent(self) -> None:
        for name, got in getattr(self, "got", {}).items():
            numbers = [number for number in got if number != GAP]
            assert numbers == sorted(set(numbers)), name
            for before, after in itertools.pairwise(got):
                assert GAP in (before, after) or after == before + 1, (name, got)

    def teardown(self) -> None:
        """Check that each reader reaches the end when all topics have room."""
        if not hasattr(self, "broker"):
            return
        for name in DESTS:
            self.put(name, 1000, rejects=True)
        self.advance(0.2)
        for name in DESTS:
            for _ in range(50):
                self.read(name, 10)
            assert self.got[name][-1] in (self.sent, GAP)
            router, head = self.router(name), self.broker.feeds.feed(DESTS[name]).head
            assert router.position == head
            assert router.forwarded <= head
        self.copies_are_in_order_and_no_loss_is_silent()


Routing.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestRouting = Routing.TestCase
