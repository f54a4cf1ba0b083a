from pullstream_protocol.messages import pubsub_pb2 as _pubsub_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResponseColumns(_message.Message):
    __slots__ = ("received_messages", "subscription_properties")
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    received_messages: _containers.RepeatedScalarFieldContainer[bytes]
    subscription_properties: _pubsub_pb2.StreamingPullResponse.SubscriptionProperties
    def __init__(self, received_messages: _Optional[_Iterable[bytes]] = ..., subscription_properties: _Optional[_Union[_pubsub_pb2.StreamingPullResponse.SubscriptionProperties, _Mapping[str, object]]] = ...) -> None: ...

class MergedResponse(_message.Message):
    __slots__ = ("received_messages", "subscription_properties")
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    received_messages: MergedMessages
    subscription_properties: _pubsub_pb2.StreamingPullResponse.SubscriptionProperties
    def __init__(self, received_messages: _Optional[_Union[MergedMessages, _Mapping[str, object]]] = ..., subscription_properties: _Optional[_Union[_pubsub_pb2.StreamingPullResponse.SubscriptionProperties, _Mapping[str, object]]] = ...) -> None: ...

class MergedMessages(_message.Message):
    __slots__ = ("ack_id", "message", "delivery_attempt")
    ACK_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ack_id: _containers.RepeatedScalarFieldContainer[str]
    message: PubsubMessageColumns
    delivery_attempt: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ack_id: _Optional[_Iterable[str]] = ..., message: _Optional[_Union[PubsubMessageColumns, _Mapping[str, object]]] = ..., delivery_attempt: _Optional[_Iterable[int]] = ...) -> None: ...

class ReceivedMessageColumns(_message.Message):
    __slots__ = ("ack_id", "message", "delivery_attempt")
    ACK_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ack_id: _containers.RepeatedScalarFieldContainer[str]
    message: _containers.RepeatedScalarFieldContainer[bytes]
    delivery_attempt: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ack_id: _Optional[_Iterable[str]] = ..., message: _Optional[_Iterable[bytes]] = ..., delivery_attempt: _Optional[_Iterable[int]] = ...) -> None: ...

class PubsubMessageColumns(_message.Message):
    __slots__ = ("data", "attributes", "message_id", "publish_time", "ordering_key")
    DATA_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedScalarFieldContainer[bytes]
    attributes: _containers.RepeatedScalarFieldContainer[bytes]
    message_id: _containers.RepeatedScalarFieldContainer[str]
    publish_time: _containers.RepeatedScalarFieldContainer[bytes]
    ordering_key: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, data: _Optional[_Iterable[bytes]] = ..., attributes: _Optional[_Iterable[bytes]] = ..., message_id: _Optional[_Iterable[str]] = ..., publish_time: _Optional[_Iterable[bytes]] = ..., ordering_key: _Optional[_Iterable[str]] = ...) -> None: ...

class AttributeColumns(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: _containers.RepeatedScalarFieldContainer[str]
    value: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[_Iterable[str]] = ..., value: _Optional[_Iterable[str]] = ...) -> None: ...

class MergedPublishRequest(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: MergedPublishedMessages
    def __init__(self, messages: _Optional[_Union[MergedPublishedMessages, _Mapping[str, object]]] = ...) -> None: ...

class MergedPublishedMessages(_message.Message):
    __slots__ = ("data", "attributes", "message_id", "publish_time", "ordering_key")
    DATA_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedScalarFieldContainer[bytes]
    attributes: AttributeColumns
    message_id: _containers.RepeatedScalarFieldContainer[str]
    publish_time: _containers.RepeatedScalarFieldContainer[bytes]
    ordering_key: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, data: _Optional[_Iterable[bytes]] = ..., attributes: _Optional[_Union[AttributeColumns, _Mapping[str, object]]] = ..., message_id: _Optional[_Iterable[str]] = ..., publish_time: _Optional[_Iterable[bytes]] = ..., ordering_key: _Optional[_Iterable[str]] = ...) -> None: ...
