from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetSubscriptionStateRequest(_message.Message):
    __slots__ = ("subscription",)
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...

class SubscriptionState(_message.Message):
    __slots__ = ("subscription", "max_waiting", "num_waiting", "max_ack_pending", "num_ack_pending", "ack_wait", "max_deliver", "delivered", "ack_floor", "num_redelivered", "num_pending", "num_streams")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    MAX_ACK_PENDING_FIELD_NUMBER: _ClassVar[int]
    NUM_ACK_PENDING_FIELD_NUMBER: _ClassVar[int]
    ACK_WAIT_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVER_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACK_FLOOR_FIELD_NUMBER: _ClassVar[int]
    NUM_REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    NUM_PENDING_FIELD_NUMBER: _ClassVar[int]
    NUM_STREAMS_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    max_waiting: int
    num_waiting: int
    max_ack_pending: int
    num_ack_pending: int
    ack_wait: _duration_pb2.Duration
    max_deliver: int
    delivered: SequencePair
    ack_floor: SequencePair
    num_redelivered: int
    num_pending: int
    num_streams: int
    def __init__(self, subscription: _Optional[str] = ..., max_waiting: _Optional[int] = ..., num_waiting: _Optional[int] = ..., max_ack_pending: _Optional[int] = ..., num_ack_pending: _Optional[int] = ..., ack_wait: _Optional[_Union[_duration_pb2.Duration, _Mapping[str, object]]] = ..., max_deliver: _Optional[int] = ..., delivered: _Optional[_Union[SequencePair, _Mapping[str, object]]] = ..., ack_floor: _Optional[_Union[SequencePair, _Mapping[str, object]]] = ..., num_redelivered: _Optional[int] = ..., num_pending: _Optional[int] = ..., num_streams: _Optional[int] = ...) -> None: ...

class SequencePair(_message.Message):
    __slots__ = ("consumer_seq", "stream_seq")
    CONSUMER_SEQ_FIELD_NUMBER: _ClassVar[int]
    STREAM_SEQ_FIELD_NUMBER: _ClassVar[int]
    consumer_seq: int
    stream_seq: int
    def __init__(self, consumer_seq: _Optional[int] = ..., stream_seq: _Optional[int] = ...) -> None: ...

class SetMaxWaitingRequest(_message.Message):
    __slots__ = ("subscription", "max_waiting")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITING_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    max_waiting: int
    def __init__(self, subscription: _Optional[str] = ..., max_waiting: _Optional[int] = ...) -> None: ...
