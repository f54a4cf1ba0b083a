from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from pullstream_protocol.messages import pubsub_pb2 as _pubsub_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Discard(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISCARD_UNSPECIFIED: _ClassVar[Discard]
    OLD: _ClassVar[Discard]
    REJECT: _ClassVar[Discard]

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    MEMORY: _ClassVar[Durability]
    DISK: _ClassVar[Durability]
    FSYNC: _ClassVar[Durability]

class GapReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GAP_REASON_UNSPECIFIED: _ClassVar[GapReason]
    CAP: _ClassVar[GapReason]
    TTL: _ClassVar[GapReason]
    MIXED: _ClassVar[GapReason]
    FROM_SEQ_TOO_OLD: _ClassVar[GapReason]
    RECREATED: _ClassVar[GapReason]
    SOURCE_TRIM: _ClassVar[GapReason]
DISCARD_UNSPECIFIED: Discard
OLD: Discard
REJECT: Discard
DURABILITY_UNSPECIFIED: Durability
MEMORY: Durability
DISK: Durability
FSYNC: Durability
GAP_REASON_UNSPECIFIED: GapReason
CAP: GapReason
TTL: GapReason
MIXED: GapReason
FROM_SEQ_TOO_OLD: GapReason
RECREATED: GapReason
SOURCE_TRIM: GapReason

class FeedConfig(_message.Message):
    __slots__ = ("ttl", "cap_records", "cap_bytes", "discard", "durability", "idempotency_window", "dedupe_node")
    TTL_FIELD_NUMBER: _ClassVar[int]
    CAP_RECORDS_FIELD_NUMBER: _ClassVar[int]
    CAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISCARD_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_WINDOW_FIELD_NUMBER: _ClassVar[int]
    DEDUPE_NODE_FIELD_NUMBER: _ClassVar[int]
    ttl: _duration_pb2.Duration
    cap_records: int
    cap_bytes: int
    discard: Discard
    durability: Durability
    idempotency_window: _duration_pb2.Duration
    dedupe_node: bool
    def __init__(self, ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping[str, object]]] = ..., cap_records: _Optional[int] = ..., cap_bytes: _Optional[int] = ..., discard: _Optional[_Union[Discard, str]] = ..., durability: _Optional[_Union[Durability, str]] = ..., idempotency_window: _Optional[_Union[_duration_pb2.Duration, _Mapping[str, object]]] = ..., dedupe_node: bool = ...) -> None: ...

class Feed(_message.Message):
    __slots__ = ("topic", "config", "epoch", "head_seq", "earliest_seq", "count", "bytes", "watchers", "created")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_SEQ_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    config: FeedConfig
    epoch: int
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    watchers: int
    created: bool
    def __init__(self, topic: _Optional[str] = ..., config: _Optional[_Union[FeedConfig, _Mapping[str, object]]] = ..., epoch: _Optional[int] = ..., head_seq: _Optional[int] = ..., earliest_seq: _Optional[int] = ..., count: _Optional[int] = ..., bytes: _Optional[int] = ..., watchers: _Optional[int] = ..., created: bool = ...) -> None: ...

class PutFeedRequest(_message.Message):
    __slots__ = ("topic", "config")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    config: FeedConfig
    def __init__(self, topic: _Optional[str] = ..., config: _Optional[_Union[FeedConfig, _Mapping[str, object]]] = ...) -> None: ...

class GetFeedRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListFeedsRequest(_message.Message):
    __slots__ = ("project", "page_size", "page_token")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    project: str
    page_size: int
    page_token: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListFeedsResponse(_message.Message):
    __slots__ = ("feeds", "next_page_token")
    FEEDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    feeds: _containers.RepeatedCompositeFieldContainer[Feed]
    next_page_token: str
    def __init__(self, feeds: _Optional[_Iterable[_Union[Feed, _Mapping[str, object]]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("topic", "messages", "idempotency_key", "create")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[_pubsub_pb2.PubsubMessage]
    idempotency_key: str
    create: bool
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_pubsub_pb2.PubsubMessage, _Mapping[str, object]]]] = ..., idempotency_key: _Optional[str] = ..., create: bool = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("first_seq", "last_seq", "head_seq", "count", "created", "deduped")
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    DEDUPED_FIELD_NUMBER: _ClassVar[int]
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    def __init__(self, first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., head_seq: _Optional[int] = ..., count: _Optional[int] = ..., created: bool = ..., deduped: bool = ...) -> None: ...

class DeleteMessagesRequest(_message.Message):
    __slots__ = ("topic", "before_seq", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEFORE_SEQ_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    before_seq: int
    filter: str
    def __init__(self, topic: _Optional[str] = ..., before_seq: _Optional[int] = ..., filter: _Optional[str] = ...) -> None: ...

class DeleteMessagesResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: int
    def __init__(self, deleted: _Optional[int] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("tail", "after_seq", "epoch", "filter")
    TAIL_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    tail: bool
    after_seq: int
    epoch: int
    filter: str
    def __init__(self, tail: bool = ..., after_seq: _Optional[int] = ..., epoch: _Optional[int] = ..., filter: _Optional[str] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("topic", "from_seq", "to_seq", "reason", "cause", "earliest_seq", "head_seq")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
    TO_SEQ_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_SEQ_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    topic: str
    from_seq: int
    to_seq: int
    reason: GapReason
    cause: GapReason
    earliest_seq: int
    head_seq: int
    def __init__(self, topic: _Optional[str] = ..., from_seq: _Optional[int] = ..., to_seq: _Optional[int] = ..., reason: _Optional[_Union[GapReason, str]] = ..., cause: _Optional[_Union[GapReason, str]] = ..., earliest_seq: _Optional[int] = ..., head_seq: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("topic", "start", "max_messages", "max_bytes", "wait", "exclude_node", "include_data")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_NODE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DATA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    start: Position
    max_messages: int
    max_bytes: int
    wait: _duration_pb2.Duration
    exclude_node: str
    include_data: bool
    def __init__(self, topic: _Optional[str] = ..., start: _Optional[_Union[Position, _Mapping[str, object]]] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping[str, object]]] = ..., exclude_node: _Optional[str] = ..., include_data: bool = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("messages", "next_seq", "head_seq", "earliest_seq", "caught_up", "gap", "epoch")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_SEQ_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_pubsub_pb2.PubsubMessage]
    next_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    gap: Gap
    epoch: int
    def __init__(self, messages: _Optional[_Iterable[_Union[_pubsub_pb2.PubsubMessage, _Mapping[str, object]]]] = ..., next_seq: _Optional[int] = ..., head_seq: _Optional[int] = ..., earliest_seq: _Optional[int] = ..., caught_up: bool = ..., gap: _Optional[_Union[Gap, _Mapping[str, object]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class WatchSpec(_message.Message):
    __slots__ = ("topics", "exclude_node", "max_messages", "max_bytes", "include_data", "heartbeat")
    class TopicsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Position
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Position, _Mapping[str, object]]] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_NODE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DATA_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.MessageMap[str, Position]
    exclude_node: str
    max_messages: int
    max_bytes: int
    include_data: bool
    heartbeat: _duration_pb2.Duration
    def __init__(self, topics: _Optional[_Mapping[str, Position]] = ..., exclude_node: _Optional[str] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., include_data: bool = ..., heartbeat: _Optional[_Union[_duration_pb2.Duration, _Mapping[str, object]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("watch_id", "spec", "resume_token")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    watch_id: str
    spec: WatchSpec
    resume_token: str
    def __init__(self, watch_id: _Optional[str] = ..., spec: _Optional[_Union[WatchSpec, _Mapping[str, object]]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("resume_token", "opened", "messages", "gap", "caught_up", "topic_deleted", "heartbeat")
    class Opened(_message.Message):
        __slots__ = ("watch_id", "session_ttl", "topics")
        class TopicsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: Frame.Start
            def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Frame.Start, _Mapping[str, object]]] = ...) -> None: ...
        WATCH_ID_FIELD_NUMBER: _ClassVar[int]
        SESSION_TTL_FIELD_NUMBER: _ClassVar[int]
        TOPICS_FIELD_NUMBER: _ClassVar[int]
        watch_id: str
        session_ttl: _duration_pb2.Duration
        topics: _containers.MessageMap[str, Frame.Start]
        def __init__(self, watch_id: _Optional[str] = ..., session_ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping[str, object]]] = ..., topics: _Optional[_Mapping[str, Frame.Start]] = ...) -> None: ...
    class Start(_message.Message):
        __slots__ = ("after_seq", "head_seq", "earliest_seq", "epoch")
        AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
        HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
        EARLIEST_SEQ_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        after_seq: int
        head_seq: int
        earliest_seq: int
        epoch: int
        def __init__(self, after_seq: _Optional[int] = ..., head_seq: _Optional[int] = ..., earliest_seq: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...
    class Messages(_message.Message):
        __slots__ = ("topic", "messages", "from_seq", "to_seq", "head_seq")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        FROM_SEQ_FIELD_NUMBER: _ClassVar[int]
        TO_SEQ_FIELD_NUMBER: _ClassVar[int]
        HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
        topic: str
        messages: _containers.RepeatedCompositeFieldContainer[_pubsub_pb2.PubsubMessage]
        from_seq: int
        to_seq: int
        head_seq: int
        def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[_pubsub_pb2.PubsubMessage, _Mapping[str, object]]]] = ..., from_seq: _Optional[int] = ..., to_seq: _Optional[int] = ..., head_seq: _Optional[int] = ...) -> None: ...
    class CaughtUp(_message.Message):
        __slots__ = ("topic", "head_seq", "time")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
        TIME_FIELD_NUMBER: _ClassVar[int]
        topic: str
        head_seq: int
        time: _timestamp_pb2.Timestamp
        def __init__(self, topic: _Optional[str] = ..., head_seq: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping[str, object]]] = ...) -> None: ...
    class TopicDeleted(_message.Message):
        __slots__ = ("topic",)
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        topic: str
        def __init__(self, topic: _Optional[str] = ...) -> None: ...
    class Heartbeat(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_DELETED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    resume_token: str
    opened: Frame.Opened
    messages: Frame.Messages
    gap: Gap
    caught_up: Frame.CaughtUp
    topic_deleted: Frame.TopicDeleted
    heartbeat: Frame.Heartbeat
    def __init__(self, resume_token: _Optional[str] = ..., opened: _Optional[_Union[Frame.Opened, _Mapping[str, object]]] = ..., messages: _Optional[_Union[Frame.Messages, _Mapping[str, object]]] = ..., gap: _Optional[_Union[Gap, _Mapping[str, object]]] = ..., caught_up: _Optional[_Union[Frame.CaughtUp, _Mapping[str, object]]] = ..., topic_deleted: _Optional[_Union[Frame.TopicDeleted, _Mapping[str, object]]] = ..., heartbeat: _Optional[_Union[Frame.Heartbeat, _Mapping[str, object]]] = ...) -> None: ...

class Router(_message.Message):
    __slots__ = ("name", "source", "dest", "filter", "preserve_node", "preserve_tag", "create_dest", "allow_cycle", "forwarded", "position", "created")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DEST_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_NODE_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_TAG_FIELD_NUMBER: _ClassVar[int]
    CREATE_DEST_FIELD_NUMBER: _ClassVar[int]
    ALLOW_CYCLE_FIELD_NUMBER: _ClassVar[int]
    FORWARDED_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: str
    dest: str
    filter: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    allow_cycle: bool
    forwarded: int
    position: int
    created: bool
    def __init__(self, name: _Optional[str] = ..., source: _Optional[str] = ..., dest: _Optional[str] = ..., filter: _Optional[str] = ..., preserve_node: bool = ..., preserve_tag: bool = ..., create_dest: bool = ..., allow_cycle: bool = ..., forwarded: _Optional[int] = ..., position: _Optional[int] = ..., created: bool = ...) -> None: ...

class PutRouterRequest(_message.Message):
    __slots__ = ("router",)
    ROUTER_FIELD_NUMBER: _ClassVar[int]
    router: Router
    def __init__(self, router: _Optional[_Union[Router, _Mapping[str, object]]] = ...) -> None: ...

class GetRouterRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListRoutersRequest(_message.Message):
    __slots__ = ("project", "page_size", "page_token", "source", "dest")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DEST_FIELD_NUMBER: _ClassVar[int]
    project: str
    page_size: int
    page_token: str
    source: str
    dest: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., source: _Optional[str] = ..., dest: _Optional[str] = ...) -> None: ...

class ListRoutersResponse(_message.Message):
    __slots__ = ("routers", "next_page_token")
    ROUTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    routers: _containers.RepeatedCompositeFieldContainer[Router]
    next_page_token: str
    def __init__(self, routers: _Optional[_Iterable[_Union[Router, _Mapping[str, object]]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteRouterRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("name", "topic", "seq", "epoch", "update_time")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    seq: int
    epoch: int
    update_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., seq: _Optional[int] = ..., epoch: _Optional[int] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping[str, object]]] = ...) -> None: ...

class PutCursorRequest(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: Cursor
    def __init__(self, cursor: _Optional[_Union[Cursor, _Mapping[str, object]]] = ...) -> None: ...

class GetCursorRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListCursorsRequest(_message.Message):
    __slots__ = ("project", "page_size", "page_token")
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    project: str
    page_size: int
    page_token: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCursorsResponse(_message.Message):
    __slots__ = ("cursors", "next_page_token")
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    next_page_token: str
    def __init__(self, cursors: _Optional[_Iterable[_Union[Cursor, _Mapping[str, object]]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteCursorRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
