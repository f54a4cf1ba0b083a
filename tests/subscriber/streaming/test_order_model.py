"""The order hold against ordered servers, with late, lost and repeated messages and requests."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import Protocol

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pullstream.flow_control import FlowControl
from pullstream.message import Disposition, Message, ResponseBatch
from pullstream.streaming.failed_key import Actions, KeyState
from pullstream.streaming.key_messages import READER_DELAY
from pullstream.streaming.messages_on_hold import MessagesOnHold
from pullstream_emulator.engine import Consumer, Engine
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.streaming.fakes import RecordingSettlementSink

TOPIC = "projects/model/topics/topic"
SUBSCRIPTION = "projects/model/subscriptions/subscription"
KEYS = st.sampled_from(["a", "b"])
FEW = st.integers(1, 4)

# The maximum seconds that the server keeps a lease after the client gave it up.
LONGEST_LEASE = 60.0


class Server(Protocol):
    """A server as the client sees it. `consumer` is 0 for the client, 1 for another subscriber."""

    def publish(self, key: str, data: bytes) -> None: ...

    def take(self, consumer: int, count: int) -> list[pubsub.ReceivedMessage]: ...

    def acknowledge(self, ack_id: str) -> None: ...

    def nack(self, ack_id: str, *, unseen: bool = False) -> None: ...

    def expire(self, ack_id: str) -> None: ...

    def cut_stream(self) -> None: ...

    def advance(self, now: float) -> None: ...

    @property
    def backlog(self) -> int: ...


class Pullstream:
    """The broker's own engine. It restarts a key at its failed message."""

    def __init__(self) -> None:
        self._now = 0.0
        self._engine = Engine(wall=lambda: 1.0, monotonic=lambda: self._now)
        self._engine.create_topic(pubsub.Topic(name=TOPIC))
        self._engine.create_subscription(
            pubsub.Subscription(name=SUBSCRIPTION, topic=TOPIC, enable_message_ordering=True)
        )
        self._consumers = [self._join(), self._join()]

    def _join(self) -> Consumer:
        consumer = Consumer(ack_deadline=600, wake=lambda: None)
        self._subscription = self._engine.join(SUBSCRIPTION, consumer)
        return consumer

    def publish(self, key: str, data: bytes) -> None:
        one = pubsub.PubsubMessage(data=data, ordering_key=key)
        self._engine.publish(pubsub.PublishRequest(topic=TOPIC, messages=[one]))

    def take(self, consumer: int, count: int) -> list[pubsub.ReceivedMessage]:
        taken = self._engine.take(self._subscription, self._consumers[consumer], count)
        return [
            pubsub.ReceivedMessage(ack_id=ack_id, message=delivery.record.message())
            for ack_id, delivery in taken
        ]

    def acknowledge(self, ack_id: str) -> None:
        self._engine.acknowledge(SUBSCRIPTION, [ack_id])

    def nack(self, ack_id: str, *, unseen: bool = False) -> None:
        self._engine.modify_ack_deadline(SUBSCRIPTION, [ack_id], 0, unseen=unseen)

    def expire(self, ack_id: str) -> None:
        self._engine.expire(SUBSCRIPTION, [ack_id])

    def cut_stream(self) -> None:
        self._engine.leave(self._subscription, self._consumers[0])
        self._consumers[0] = self._join()

    def advance(self, now: float) -> None:
        self._now = now
        self._engine.advance()

    @property
    def backlog(self) -> int:
        return self._engine.backlog(SUBSCRIPTION)


@dataclass
class Stored:
    """A message in JavaEmulator. Its ack id is empty while it waits."""

    received: pubsub.ReceivedMessage
    acked: bool = False


class JavaEmulator:
    """Google's Java emulator: redelivers a nacked message alone, and an expired one with the rest.

    It gives all messages to one client and keeps the leases of a broken stream.
    """

    def __init__(self) -> None:
        self._keys: dict[str, list[Stored]] = defaultdict(list)
        self._count = 0

    def publish(self, key: str, data: bytes) -> None:
        self._count += 1
        message = pubsub.PubsubMessage(data=data, ordering_key=key, message_id=str(self._count))
        self._keys[key].append(Stored(pubsub.ReceivedMessage(message=message)))

    def take(self, consumer: int, count: int) -> list[pubsub.ReceivedMessage]:
        taken: list[pubsub.ReceivedMessage] = []
        for stored in [one for key in self._keys.values() for one in key]:
            if consumer == 0 and not stored.received.ack_id and len(taken) < count:
                self._count += 1
                stored.received.ack_id = f"lease-{self._count}"
                copy = pubsub.ReceivedMessage()
                copy.CopyFrom(stored.received)
                taken.append(copy)
        return taken

    def _find(self, ack_id: str) -> tuple[list[Stored], int] | None:
        for key in self._keys.values():
            for index, stored in enumerate(key):
                if stored.received.ack_id == ack_id and not stored.acked:
                    return key, index
        return None

    def acknowledge(self, ack_id: str) -> None:
        if found := self._find(ack_id):
            key, index = found
            key[index].acked = True
            while key and key[0].acked:
                key.pop(0)

    def nack(self, ack_id: str, *, unseen: bool = False) -> None:
        if found := self._find(ack_id):
            key, index = found
            key[index].received.ack_id = ""

    def expire(self, ack_id: str) -> None:
        if found := self._find(ack_id):
            key, index = found
            for stored in key[index:]:
                stored.received.ack_id, stored.acked = "", False

    def cut_stream(self) -> None:
        """Lose the messages in flight. Their leases end some time later."""

    def advance(self, now: float) -> None:
        """Do nothing: this server has no timers."""

    @property
    def backlog(self) -> int:
        return sum(len(key) for key in self._keys.values())


class OrderUnderFailures(RuleBasedStateMachine):
    """A server that keeps order, a client with a hold, and two slow connections between them.

    In each key, no callback begins while another runs, or before all earlier messages were handled
    (their callback succeeded, here or at another subscriber). In the end everything is handled.
    """

    def new_server(self) -> Server:
        return Pullstream()

    def __init__(self) -> None:
        super().__init__()
        self.server = self.new_server()
        self.now = 0.0
        self.hold = MessagesOnHold(FlowControl(max_messages=20))
        # Messages in flight, with the time when the server sent each.
        self.responses: deque[tuple[float, pubsub.ReceivedMessage]] = deque()
        # The number of first responses that may have waited unread until their leases ended.
        self.stale = 0
        # Responses whose receipts the server has not answered, and ack ids that it will refuse.
        self.unconfirmed: deque[list[Message]] = deque()
        self.refused: set[str] = set()
        # Acknowledgements, nacks and returns that have not arrived.
        self.requests: list[tuple[str, str]] = []
        # Leases that the client gave up, and the time when the server ends them.
        self.ending: list[tuple[float, str]] = []
        self.running: dict[str, Message] = {}
        self.unsettled: list[Message] = []
        self.published: dict[str, int] = defaultdict(int)
        self.bytes_each = 1
        # The sums of the changes that the hold has reported.
        self.parked = self.parked_bytes = 0
        # How many copies of each message were handled.
        self.handled: dict[str, Counter[int]] = defaultdict(Counter)

    # ---- the server ------------------------------------------------------------------------------

    @rule(key=KEYS, count=FEW)
    def publish(self, key: str, count: int) -> None:
        for _ in range(count):
            self.server.publish(key, str(self.published[key]).encode())
            self.published[key] += 1

    @rule(count=FEW)
    def send(self, count: int) -> None:
        self.responses += [(self.now, one) for one in self.server.take(0, count)]

    @rule(count=FEW)
    def another_subscriber_handles(self, count: int) -> None:
        for one in self.server.take(1, count):
            self.handled[one.message.ordering_key][int(one.message.data)] += 1
            self.server.acknowledge(one.ack_id)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def a_request_arrives(self, data: st.DataObject) -> None:
        self.serve(data.draw(st.integers(0, len(self.requests) - 1)))

    def serve(self, index: int) -> None:
        kind, ack_id = self.requests.pop(index)
        if kind == "ack":
            self.server.acknowledge(ack_id)
        else:
            self.server.nack(ack_id, unseen=kind == "return")
            self.act(self.hold.nacks_accepted([ack_id], self.now))

    @precondition(lambda self: self.responses)
    @rule(data=st.data())
    def a_lease_expires_in_flight(self, data: st.DataObject) -> None:
        """The client knows only that these messages may have waited unread for long."""
        index = data.draw(st.integers(0, len(self.responses) - 1))
        self.server.expire(self.responses[index][1].ack_id)
        self.send(2)
        self.stale = len(self.responses)

    @rule()
    def the_stream_breaks(self) -> None:
        """The messages in flight are lost, and the server delivers them again."""
        self.server.cut_stream()
        for _, one in self.responses:
            self.server.expire(one.ack_id)
        self.responses.clear()
        self.stale = 0

    @rule(seconds=st.sampled_from([0.5, 2.0, 30.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        # The client knows of messages that have waited unread for long.
        waited = sum(self.now - sent >= READER_DELAY for sent, _ in self.responses)
        self.stale = max(self.stale, waited)
        for due, ack_id in [one for one in self.ending if one[0] <= self.now]:
            self.ending.remove((due, ack_id))
            self.server.expire(ack_id)
        self.server.advance(self.now)
        self.act(self.hold.waits_over(self.now))

    # ---- the client ------------------------------------------------------------------------------

    @rule(count=FEW, wait=st.booleans())
    def receive(self, count: int, wait: bool) -> None:
        """Read a response, whose receipts may have to wait for the server's answers."""
        few = [self.responses.popleft()[1] for _ in range(min(count, len(self.responses)))]
        batch = ResponseBatch(
            RecordingSettlementSink(),
            self.now,
            self.bytes_each,
            pubsub.StreamingPullResponse(received_messages=few),
        )
        # Each response has its own size, so that a mistaken count does not stay hidden.
        self.bytes_each += 1
        batch.may_be_stale = self.stale > 0
        self.stale = max(self.stale - len(few), 0)
        if few:
            self.unconfirmed.append(batch.messages())
        if not wait:
            self.receipts_are_answered()

    @precondition(lambda self: self.unconfirmed)
    @rule(data=st.data(), is_known=st.booleans())
    def a_lease_ends_before_its_receipt(self, data: st.DataObject, is_known: bool) -> None:
        """The server refuses the receipt. A refused extension may show it earlier."""
        one = data.draw(st.sampled_from([one for few in self.unconfirmed for one in few]))
        self.server.expire(one.ack_id)
        self.refused.add(one.ack_id)
        if is_known:
            self.lose([one])

    def lose(self, messages: list[Message]) -> None:
        for message in messages:
            message.settled = message.settled or Disposition.LOST
        self.act(self.hold.lost(messages, self.now))

    @rule()
    def receipts_are_answered(self) -> None:
        """A confirmed message may have lost its lease by now, which the hold already knows."""
        while self.unconfirmed:
            few = self.unconfirmed.popleft()
            self.lose([one for one in few if one.ack_id in self.refused and one.settled is None])
            self.act(self.hold.offer(few, self.now))

    def act(self, actions: Actions) -> None:
        self.parked += actions.parked
        self.parked_bytes += actions.parked_bytes
        self.requests += [("ack", message.ack_id) for message in actions.acknowledge]
        self.requests += [("return", message.ack_id) for message in actions.to_return]
        self.requests += [("nack", message.ack_id) for message in actions.return_dropped]
        for message in actions.run:
            self.begin(message)

    def begin(self, message: Message) -> None:
        key, number = message.ordering_key, int(message.data)
        assert key not in self.running
        assert all(self.handled[key][earlier] > 0 for earlier in range(number))
        self.running[key] = message

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ends=st.sampled_from(["ack", "ack later", "nack", "drop"]))
    def a_callback_ends(self, data: st.DataObject, ends: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.end(self.running.pop(key), ends)

    def end(self, message: Message, ends: str) -> None:
        if ends == "nack":
            message.settled = message.settled or Disposition.NACK
            self.requests.append(("nack", message.ack_id))
        elif ends == "drop":
            message.settled = message.settled or Disposition.DROP
        else:
            self.handled[message.ordering_key][int(message.data)] += 1
            if ends == "ack":
                message.settled = message.settled or Disposition.ACK
                self.requests.append(("ack", message.ack_id))
            else:
                self.unsettled.append(message)
        if message.settled in (Disposition.NACK, Disposition.DROP):
            self.act(self.hold.failed(message))
        following, actions = self.hold.ended(message)
        for each in following:
            self.begin(each)
        if actions is not None:
            self.act(actions)

    @precondition(lambda self: self.unsettled)
    @rule()
    def a_late_acknowledgement(self) -> None:
        message = self.unsettled.pop()
        message.settled = message.settled or Disposition.ACK
        self.requests.append(("ack", message.ack_id))

    @precondition(lambda self: self.unsettled)
    @rule()
    def a_late_nack(self) -> None:
        """The callback has ended, and the next message of its key may run.

        This copy is not handled.
        """
        message = self.unsettled.pop()
        message.settled = message.settled or Disposition.NACK
        self.handled[message.ordering_key][int(message.data)] -= 1
        self.requests.append(("nack", message.ack_id))
        self.act(self.hold.failed(message))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), held_too=st.booleans())
    def leases_are_given_up(self, data: st.DataObject, held_too: bool) -> None:
        """After max_lease_duration, the lease of the running message is given up.

        The leases of all held messages may be given up too.
        """
        key = data.draw(st.sampled_from(sorted(self.running)))
        running = self.running[key]
        held = [*(self.hold._held.get(key) or ())]
        if key in self.hold._failed:
            held = self.hold._failed[key].held
        if held_too and held:
            for message in held:
                message.settled = Disposition.RETURN
            self.requests += [("return", message.ack_id) for message in held]
            self.act(self.hold.lost(held, None))
        if running.settled is None:
            running.settled = Disposition.DROP
            ends = data.draw(st.floats(1.0, LONGEST_LEASE))
            self.ending.append((self.now + ends, running.ack_id))
            self.act(self.hold.lost([running], self.now + LONGEST_LEASE))

    @invariant()
    def parked_messages_are_counted(self) -> None:
        """Flow control exempts the messages of the keys that wait, and their bytes."""
        waiting = [failed for failed in self.hold._failed.values() if failed.is_waiting]
        parked = [message for failed in waiting for message in failed.held]
        size = sum(message.batch.bytes_each for message in parked)
        assert (self.parked, self.parked_bytes) == (len(parked), size)
        assert (self.hold._parked, self.hold._parked_bytes) == (len(parked), size)

    @invariant()
    def waits_belong_to_states(self) -> None:
        """A key has a due time only if the server can redeliver its missing messages."""
        for failed in self.hold._failed.values():
            if failed.state is KeyState.WAITING:
                assert failed.due is not None
            elif failed.state in (KeyState.IN_ORDER, KeyState.NACKED, KeyState.GAVE_UP):
                assert failed.due is None

    # ---- the end ---------------------------------------------------------------------------------

    def teardown(self) -> None:
        """When nothing fails any more, everything is handled and nothing stays held."""
        for _ in range(200):
            self.send(100)
            self.receive(100, wait=False)
            for key in sorted(self.running):
                self.end(self.running.pop(key), "ack")
            while self.unsettled:
                self.a_late_acknowledgement()
            while self.requests:
                self.serve(0)
            self.time_passes(10.0)
        assert not self.running
        assert len(self.hold) == 0
        assert self.server.backlog == 0
        assert (self.parked, self.parked_bytes, self.hold._nacks) == (0, 0, {})
        assert {key: len(+done) for key, done in self.handled.items() if +done} == {
            key: count for key, count in self.published.items() if count
        }


class OrderWithJavaEmulator(OrderUnderFailures):
    """The same model with a server that does not restart keys."""

    def new_server(self) -> Server:
        return JavaEmulator()


TestOrderUnderFailures = OrderUnderFailures.TestCase
TestOrderWithJavaEmulator = OrderWithJavaEmulator.TestCase
TestOrderUnderFailures.settings = TestOrderWithJavaEmulator.settings = settings(
    stateful_step_count=60, deadline=None
)
