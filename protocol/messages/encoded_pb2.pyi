from protocol.messages import pubsub_pb2 as _pubsub_pb2
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
