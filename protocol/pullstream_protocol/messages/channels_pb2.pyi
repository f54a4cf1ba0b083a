from pullstream_protocol.messages import pubsub_pb2 as _pubsub_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Command(_message.Message):
    __slots__ = ("channel", "key", "subscribe")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    channel: str
    key: str
    subscribe: bool
    def __init__(self, channel: _Optional[str] = ..., key: _Optional[str] = ..., subscribe: bool = ...) -> None: ...

class CommandsRequest(_message.Message):
    __slots__ = ("subscriber_id", "incarnation", "batch_no", "replace", "commands", "newest_only")
    SUBSCRIBER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_NO_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_ONLY_FIELD_NUMBER: _ClassVar[int]
    subscriber_id: str
    incarnation: int
    batch_no: int
    replace: bool
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    newest_only: bool
    def __init__(self, subscriber_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., batch_no: _Optional[int] = ..., replace: bool = ..., commands: _Optional[_Iterable[_Union[Command, _Mapping[str, object]]]] = ..., newest_only: bool = ...) -> None: ...

class CommandsResponse(_message.Message):
    __slots__ = ("incarnation", "applied")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    applied: bool
    def __init__(self, incarnation: _Optional[int] = ..., applied: bool = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("subscriber_id", "incarnation", "max_processed_seq", "max_messages", "max_bytes")
    SUBSCRIBER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MAX_PROCESSED_SEQ_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    subscriber_id: str
    incarnation: int
    max_processed_seq: int
    max_messages: int
    max_bytes: int
    def __init__(self, subscriber_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., max_processed_seq: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class PollResponse(_message.Message):
    __slots__ = ("incarnation", "items")
    class Item(_message.Message):
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
        message: _pubsub_pb2.PubsubMessage
        failure: str
        dropped: int
        def __init__(self, seq: _Optional[int] = ..., channel: _Optional[str] = ..., key: _Optional[str] = ..., message: _Optional[_Union[_pubsub_pb2.PubsubMessage, _Mapping[str, object]]] = ..., failure: _Optional[str] = ..., dropped: _Optional[int] = ...) -> None: ...
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    items: _containers.RepeatedCompositeFieldContainer[PollResponse.Item]
    def __init__(self, incarnation: _Optional[int] = ..., items: _Optional[_Iterable[_Union[PollResponse.Item, _Mapping[str, object]]]] = ...) -> None: ...

class UnregisterRequest(_message.Message):
    __slots__ = ("subscriber_id",)
    SUBSCRIBER_ID_FIELD_NUMBER: _ClassVar[int]
    subscriber_id: str
    def __init__(self, subscriber_id: _Optional[str] = ...) -> None: ...

class PublishFailureRequest(_message.Message):
    __slots__ = ("channel", "key", "reason")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    channel: str
    key: str
    reason: str
    def __init__(self, channel: _Optional[str] = ..., key: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
