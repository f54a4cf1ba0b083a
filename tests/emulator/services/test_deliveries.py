"""First deliveries are written in one step, with the same bytes as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.engine.delivery import unacked
from pullstream_emulator.engine.delivery.ack_ids import AckNumbers
from pullstream_emulator.engine.delivery.lease_runs import DeliverySpan
from pullstream_emulator.services.deliveries import add_deliveries
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import encoded_pb2 as encoded
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.broker import SUBSCRIPTION, TOPIC, Broker, new_engine

DEAD = f"{TOPIC}-dead"

# Sizes at which a length needs one byte more, and at which a byte of it is a percent sign.
sizes = st.sampled_from([1, 2, 37, 86, 95, 100, 127, 128, 293, 16_383])
requests = st.lists(st.lists(sizes, min_size=1, max_size=8), min_size=1, max_size=4)
# Numbers that get a digit more.
firsts = st.sampled_from([1, 5, 92, 996])
ack_numbers = st.sampled_from([1, 12, 250, 4090])


def response_of(broker: Broker, *, as_run: bool, limit: int) -> list[bytes]:
    """Take all messages, acknowledge them, and return the serialized responses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unacked, "MIN_RUN", 1 if as_run else 10_000)
        driver = broker.join()
        subscription = broker.engine.registry.subscription(SUBSCRIPTION)
        responses = []
        while deliveries := broker.engine.lease(subscription, driver.consumer, limit):
            assert (type(deliveries) is DeliverySpan) == as_run
            response = encoded.EncodedPullResponse()
            add_deliveries(response, deliveries, subscription.config)
            responses.append(response.SerializeToString())
            assert sum(len(each.message) for each in response.received_messages) == sum(
                each.record.size for each in deliveries
            )
            ids = [each.ack_id for each in response.received_messages]
            assert broker.engine.acknowledge(SUBSCRIPTION, ids) == {}
    assert broker.engine.kept_bytes == broker.backlog == 0
    return responses


@given(requests, firsts, ack_numbers, st.booleans(), st.integers(1, 12))
def test_a_response_is_the_same_if_its_messages_have_no_objects(
    each: list[list[int]], first: int, ack_number: int, with_attempts: bool, limit: int
) -> None:
    """Requests with few messages have records from the start, those with many do not."""
    responses = []
    for as_run in (True, False):
        engine = new_engine(clock := ManualClock())
        engine.create_topic(pubsub.Topic(name=DEAD))
        policy = pubsub.DeadLetterPolicy(dead_letter_topic=DEAD) if with_attempts else None
        broker = Broker(clock, engine=engine, dead_letter_policy=policy)
        broker.engine.registry.topics[TOPIC].log.head_seq = first - 1
        leases = broker.engine.registry.subscription(SUBSCRIPTION).leases
        leases._numbers = AckNumbers(ack_number)
        for request in each:
            broker.publish(*["x" * size for size in request])
        responses.append(response_of(broker, as_run=as_run, limit=limit))
    assert responses[0] == responses[1]
