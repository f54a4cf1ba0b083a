from pullstream_protocol.messages import feeds_pb2 as _feeds_pb2
from pullstream_protocol.messages import pubsub_pb2 as _pubsub_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EncodedReceivedMessage(_message.Message):
    __slots__ = ("ack_id", "message", "delivery_attempt")
    ACK_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ack_id: str
    message: bytes
    delivery_attempt: int
    def __init__(self, ack_id: _Optional[str] = ..., message: _Optional[bytes] = ..., delivery_attempt: _Optional[int] = ...) -> None: ...

class EncodedPullResponse(_message.Message):
    __slots__ = ("received_messages",)
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    received_messages: _containers.RepeatedCompositeFieldContainer[EncodedReceivedMessage]
    def __init__(self, received_messages: _Optional[_Iterable[_Union[EncodedReceivedMessage, _Mapping[str, object]]]] = ...) -> None: ...

class EncodedStreamingPullResponse(_message.Message):
    __slots__ = ("received_messages", "acknowledge_confirmation", "modify_ack_deadline_confirmation", "subscription_properties")
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    MODIFY_ACK_DEADLINE_CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    received_messages: _containers.RepeatedCompositeFieldContainer[EncodedReceivedMessage]
    acknowledge_confirmation: _pubsub_pb2.StreamingPullResponse.AcknowledgeConfirmation
    modify_ack_deadline_confirmation: _pubsub_pb2.StreamingPullResponse.ModifyAckDeadlineConfirmation
    subscription_properties: _pubsub_pb2.StreamingPullResponse.SubscriptionProperties
    def __init__(self, received_messages: _Optional[_Iterable[_Union[EncodedReceivedMessage, _Mapping[str, object]]]] = ..., acknowledge_confirmation: _Optional[_Union[_pubsub_pb2.StreamingPullResponse.AcknowledgeConfirmation, _Mapping[str, object]]] = ..., modify_ack_deadline_confirmation: _Optional[_Union[_pubsub_pb2.StreamingPullResponse.ModifyAckDeadlineConfirmation, _Mapping[str, object]]] = ..., subscription_properties: _Optional[_Union[_pubsub_pb2.StreamingPullResponse.SubscriptionProperties, _Mapping[str, object]]] = ...) -> None: ...

class EncodedPublishRequest(_message.Message):
    __slots__ = ("topic", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[bytes]] = ...) -> None: ...

class EncodedReadResponse(_message.Message):
    __slots__ = ("messages", "next_seq", "head_seq", "earliest_seq", "caught_up", "gap", "epoch")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_SEQ_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    next_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    gap: _feeds_pb2.Gap
    epoch: int
    def __init__(self, messages: _Optional[_Iterable[bytes]] = ..., next_seq: _Optional[int] = ..., head_seq: _Optional[int] = ..., earliest_seq: _Optional[int] = ..., caught_up: bool = ..., gap: _Optional[_Union[_feeds_pb2.Gap, _Mapping[str, object]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class EncodedFrame(_message.Message):
    __slots__ = ("resume_token", "opened", "messages", "gap", "caught_up", "topic_deleted", "heartbeat")
    class EncodedMessages(_message.Message):
        __slots__ = ("topic", "messages", "from_seq", "to_seq", "head_seq")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
        TO_SEQ_FIELD_NUMBER: _ClassVar[int]
        HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
        topic: str
        messages: _containers.RepeatedScalarFieldContainer[bytes]
        from_seq: int
        to_seq: int
        head_seq: int
        def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[bytes]] = ..., from_seq: _Optional[int] = ..., to_seq: _Optional[int] = ..., head_seq: _Optional[int] = ...) -> None: ...
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_DELETED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    resume_token: str
    opened: _feeds_pb2.Frame.Opened
    messages: EncodedFrame.EncodedMessages
    gap: _feeds_pb2.Gap
    caught_up: _feeds_pb2.Frame.CaughtUp
    topic_deleted: _feeds_pb2.Frame.TopicDeleted
    heartbeat: _feeds_pb2.Frame.Heartbeat
    def __init__(self, resume_token: _Optional[str] = ..., opened: _Optional[_Union[_feeds_pb2.Frame.Opened, _Mapping[str, object]]] = ..., messages: _Optional[_Union[EncodedFrame.EncodedMessages, _Mapping[str, object]]] = ..., gap: _Optional[_Union[_feeds_pb2.Gap, _Mapping[str, object]]] = ..., caught_up: _Optional[_Union[_feeds_pb2.Frame.CaughtUp, _Mapping[str, object]]] = ..., topic_deleted: _Optional[_Union[_feeds_pb2.Frame.TopicDeleted, _Mapping[str, object]]] = ..., heartbeat: _Optional[_Union[_feeds_pb2.Frame.Heartbeat, _Mapping[str, object]]] = ...) -> None: ...

class EncodedPollResponse(_message.Message):
    __slots__ = ("incarnation", "items")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    items: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, incarnation: _Optional[int] = ..., items: _Optional[_Iterable[bytes]] = ...) -> None: ...

class EncodedItem(_message.Message):
    __slots__ = ("seq", "channel", "key", "message", "failure", "dropped")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    seq: int
    channel: str
    key: str
    message: bytes
    failure: str
    dropped: int
    def __init__(self, seq: _Optional[int] = ..., channel: _Optional[str] = ..., key: _Optional[str] = ..., message: _Optional[bytes] = ..., failure: _Optional[str] = ..., dropped: _Optional[int] = ...) -> None: ...
