"""Random messages of the wire format, whose fields may be missing."""

from __future__ import annotations

from hypothesis import strategies as st

from pullstream_protocol.messages import pubsub_pb2 as pubsub

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)

# Readers of columns must notice a missing field. An ack ID is never missing.
RECEIVED = st.builds(
    pubsub.ReceivedMessage,
    ack_id=st.text("abc", min_size=1, max_size=5),
    delivery_attempt=st.integers(0, 100),
    message=st.builds(
        pubsub.PubsubMessage,
        message_id=TEXTS,
        data=st.binary(max_size=20),
        attributes=st.dictionaries(st.sampled_from("ab") | TEXTS, TEXTS, max_size=3),
        ordering_key=TEXTS,
        publish_time=st.builds(
            lambda seconds, nanos: {"seconds": seconds, "nanos": nanos},
            st.integers(0, 4_000_000_000),
            st.integers(0, 999_999_999),
        ),
    ),
)
