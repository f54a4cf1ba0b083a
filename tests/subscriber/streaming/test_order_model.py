"""The hold against the broker's own engine, with everything between them late, lost or repeated."""

from collections import Counter, defaultdict, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from emulator.engine import Consumer, Engine
from protocol.messages import pubsub_pb2 as pubsub
from subscriber.message import Batch, Message, Verdict
from subscriber.streaming.messages_on_hold import MessagesOnHold
from tests.subscriber.streaming.fakes import Outcomes

TOPIC = "projects/model/topics/topic"
SUBSCRIPTION = "projects/model/subscriptions/subscription"
KEYS = st.sampled_from(["a", "b"])
FEW = st.integers(1, 4)


class OrderUnderFailures(RuleBasedStateMachine):
    """A server that keeps order, a client with a hold, and two slow wires between them.

    In each key, no callback begins while another runs, nor before all earlier messages were handled
    (their callback ended well, here or at another subscriber). In the end everything is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(wall=lambda: 1.0, monotonic=lambda: 0.0)
        self.engine.create_topic(pubsub.Topic(name=TOPIC))
        self.engine.create_subscription(
            pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, enable_message_ordering=True)
        )
        self.consumer = self.join()
        self.other = self.join()
        self.hold = MessagesOnHold()
        self.responses: deque[pubsub.ReceivedMessage] = deque()
        # Acknowledgements and nacks (seconds 0) that have not arrived.
        self.requests: list[tuple[str, str]] = []
        self.running: dict[str, Message] = {}
        self.unsettled: list[Message] = []
        self.published: dict[str, int] = defaultdict(int)
        # How many copies of each message were handled.
        self.handled: dict[str, Counter[int]] = defaultdict(Counter)

    # ---- the server ------------------------------------------------------------------------------

    def join(self) -> Consumer:
        consumer = Consumer(ack_deadline=60, wake=lambda: None)
        self.subscription = self.engine.join(SUBSCRIPTION, consumer)
        return consumer

    @rule(key=KEYS, count=FEW)
    def publish(self, key: str, count: int) -> None:
        for _ in range(count):
            data = str(self.published[key]).encode()
            self.published[key] += 1
            one = pubsub.PubsubMessage(data=data, ordering_key=key)
            self.engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=[one]))

    @rule(count=FEW)
    def send(self, count: int) -> None:
        for ack_id, delivery in self.engine.take(self.subscription, self.consumer, count):
            one = pubsub.PubsubMessage.FromString(delivery.record.encoded)
            self.responses.append(pubsub.ReceivedMessage(ack_id=ack_id, message=one))

    @rule(count=FEW)
    def another_subscriber_handles(self, count: int) -> None:
        for ack_id, delivery in self.engine.take(self.subscription, self.other, count):
            one = pubsub.PubsubMessage.FromString(delivery.record.encoded)
            self.handled[one.ordering_key][int(one.data)] += 1
            self.engine.acknowledge(SUBSCRIPTION, [ack_id])

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def a_request_arrives(self, data: st.DataObject) -> None:
        self.serve(data.draw(st.integers(0, len(self.requests) - 1)))

    def serve(self, index: int) -> None:
        kind, ack_id = self.requests.pop(index)
        if kind == "ack":
            self.engine.acknowledge(SUBSCRIPTION, [ack_id])
        else:
            self.engine.modify_ack_deadline(SUBSCRIPTION, [ack_id], 0)

    @precondition(lambda self: self.responses)
    @rule(data=st.data())
    def a_lease_expires_in_flight(self, data: st.DataObject) -> None:
        """The client does not know, and will handle a stale copy."""
        index = data.draw(st.integers(0, len(self.responses) - 1))
        self.engine.modify_ack_deadline(SUBSCRIPTION, [self.responses[index].ack_id], 0)

    @rule()
    def the_stream_breaks(self) -> None:
        """What was in flight is gone; the server gives everything back that the stream held."""
        self.engine.leave(self.subscription, self.consumer)
        self.responses.clear()
        self.consumer = self.join()

    # ---- the client ------------------------------------------------------------------------------

    @rule(count=FEW)
    def receive(self, count: int) -> None:
        while self.responses and count:
            count -= 1
            one = self.responses.popleft()
            response = pubsub.StreamingPullResponse(received_messages=[one])
            offered = self.hold.offer(Batch(Outcomes(), 0.0, 0, response).messages())
            self.nack(offered.refuse)
            for message in offered.run:
                self.begin(message)

    def begin(self, message: Message) -> None:
        key, number = message.ordering_key, int(message.data)
        assert key not in self.running
        assert all(self.handled[key][earlier] > 0 for earlier in range(number))
        self.running[key] = message

    def nack(self, messages: list[Message]) -> None:
        self.requests += [("nack", message.ack_id) for message in messages]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ends=st.sampled_from(["ack", "ack later", "nack"]))
    def a_callback_ends(self, data: st.DataObject, ends: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.end(self.running.pop(key), ends)

    def end(self, message: Message, ends: str) -> None:
        if ends == "nack":
            self.nack([message, *self.hold.failed(message)])
        else:
            self.handled[message.ordering_key][int(message.data)] += 1
            if ends == "ack":
                self.requests.append(("ack", message.ack_id))
            else:
                self.unsettled.append(message)
            if message.settled is Verdict.DROP:
                self.nack(self.hold.failed(message))
        following = self.hold.ended(message)
        if following is not None:
            self.begin(following)

    @precondition(lambda self: self.unsettled)
    @rule()
    def a_late_acknowledgement(self) -> None:
        self.requests.append(("ack", self.unsettled.pop().ack_id))

    @precondition(lambda self: self.unsettled)
    @rule()
    def a_late_nack(self) -> None:
        """Its callback has ended, and the next of its key may run. This copy is not handled."""
        message = self.unsettled.pop()
        self.handled[message.ordering_key][int(message.data)] -= 1
        self.nack([message, *self.hold.failed(message)])

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leases_are_given_up(self, data: st.DataObject) -> None:
        """After max_lease_duration, the running message's or a held one's (all of them one day)."""
        key = data.draw(st.sampled_from(sorted(self.running)))
        candidates = [self.running[key], *(self.hold._held[key] or ())]
        lost = candidates[data.draw(st.integers(0, len(candidates) - 1)) :]
        if data.draw(st.booleans()):
            lost = lost[:1]
        for message in lost:
            message.settled = Verdict.DROP
            self.requests.append(("expiry", message.ack_id))
        self.nack(self.hold.lost(lost))

    # ---- the end ---------------------------------------------------------------------------------

    def teardown(self) -> None:
        """When nothing fails any more, everything is handled and nothing stays held."""
        for _ in range(200):
            self.send(100)
            self.receive(100)
            for key in sorted(self.running):
                self.end(self.running.pop(key), "ack")
            while self.unsettled:
                self.a_late_acknowledgement()
            while self.requests:
                self.serve(0)
        assert not self.running
        assert len(self.hold) == 0
        assert self.engine.backlog(SUBSCRIPTION) == 0
        assert {key: len(+done) for key, done in self.handled.items() if +done} == {
            key: count for key, count in self.published.items() if count
        }


TestOrderUnderFailures = OrderUnderFailures.TestCase
TestOrderUnderFailures.settings = settings(stateful_step_count=60, deadline=None)
