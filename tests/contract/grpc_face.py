"""The Feeds service, called through its generated stubs only."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.message import Message

from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD
from tests.contract.face import TIMEOUT, Event, FaceError, Json
from tests.contract.grpc_forms import (
    PROJECT,
    config_of,
    face_error,
    records_of,
    router_of,
    router_path,
    short,
    to_config,
    to_filter,
    to_message,
    to_position,
    tombstone_of,
    topic_of,
    topic_path,
)

_PUT_ROUTER = (
    "router", "source", "dest", "preserve_node", "preserve_tag", "filter", "allow_cycle",
)  # fmt: skip


_EVENTS = {
    "messages": "record",
    "gap": "tombstone",
    "caught_up": "caught-up",
    "topic_deleted": "topic-deleted",
}


class GrpcFace:
    """A client of the Feeds service with its own channel."""

    def __init__(self, endpoint: str) -> None:
        self.channel = grpc.insecure_channel(
            endpoint, options=[("grpc.use_local_subchannel_pool", 1)]
        )

    def close(self) -> None:
        self.channel.close()

    def call(self, method: str, request: Message) -> Any:
        rpc = BY_METHOD[method]
        stub = self.channel.unary_unary(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )
        try:
            return stub(request, timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise face_error(error) from error

    # ---- topics --------------------------------------------------------------------------------

    def put_topic(self, name: str, **config: Any) -> Json:
        request = feeds.PutFeedRequest(topic=topic_path(name), config=to_config(config))
        feed = self.call("PutFeed", request)
        return {"topic": name, "created": feed.created, "config": config_of(feed.config)}

    def get_topic(self, name: str) -> Json:
        feed = self.call("GetFeed", feeds.GetFeedRequest(topic=topic_path(name)))
        return topic_of(feed)

    def list_topics(self) -> list[Json]:
        response = self.call("ListFeeds", feeds.ListFeedsRequest(project=PROJECT))
        return [topic_of(feed) for feed in response.feeds]

    def delete_topic(self, name: str) -> Json:
        try:
            self.call("DeleteTopic", pubsub.DeleteTopicRequest(topic=topic_path(name)))
        except FaceError as error:
            if error.status != 404:
                raise
            return {"topic": name, "deleted": False}
        return {"topic": name, "deleted": True}

    # ---- records -------------------------------------------------------------------------------

    def append(self, name: str, records: Sequence[Json], **extras: Any) -> Json:
        node = extras.pop("node", None)
        request = feeds.AppendRequest(
            topic=topic_path(name),
            messages=[to_message(record, node) for record in records],
            **extras,
        )
        response = self.call("Append", request)
        return {
            "topic": name,
            "first_seq": response.first_seq,
            "last_seq": response.last_seq,
            "seqs": list(range(response.first_seq, response.last_seq + 1)),
            "head_seq": response.head_seq,
            "count": response.count,
            "created": response.created,
            "deduped": response.deduped,
        }

    def read(self, name: str, **params: Any) -> Json:
        include_data = params.get("include_data", True)
        request = feeds.ReadRequest(
            topic=topic_path(name),
            start=to_position(params),
            max_messages=params.get("limit", 0),
            max_bytes=params.get("max_batch_bytes", 0),
            exclude_node=params.get("node", ""),
            include_data=include_data,
        )
        request.wait.FromMilliseconds(params.get("wait_ms", 0))
        response = self.call("Read", request)
        tags = params.get("include_tags", not include_data)
        return {
            "topic": name,
            "records": records_of(response.messages, data=include_data, tags=tags),
            "next_from_seq": response.next_seq,
            "head_seq": response.head_seq,
            "earliest_seq": response.earliest_seq,
            "caught_up": response.caught_up,
            "lag": response.head_seq - response.next_seq,
            "tombstone": tombstone_of(response.gap) if response.HasField("gap") else None,
            "epoch": str(response.epoch),
        }

    def delete_records(self, name: str, **params: Any) -> Json:
        request = feeds.DeleteMessagesRequest(
            topic=topic_path(name),
            before_seq=params.get("before_seq", 0),
            filter=to_filter(params.get("match")),
        )
        response = self.call("DeleteMessages", request)
        feed = self.get_topic(name)
        kept = {key: feed[key] for key in ("earliest_seq", "head_seq", "count", "bytes")}
        return {"topic": name, "deleted": response.deleted, **kept}

    # ---- routers -------------------------------------------------------------------------------

    def put_router(self, name: str, **config: Any) -> Json:
        router = feeds.Router(
            name=router_path(name),
            source=topic_path(config.pop("source")),
            dest=topic_path(config.pop("dest")),
            filter=to_filter(config.pop("filter", None)),
            **config,
        )
        made = self.call("PutRouter", feeds.PutRouterRequest(router=router))
        told = router_of(made)
        return {key: told[key] for key in _PUT_ROUTER} | {"created": made.created}

    def get_router(self, name: str) -> Json:
        return router_of(self.call("GetRouter", feeds.GetRouterRequest(name=router_path(name))))

    def list_routers(self, **params: Any) -> list[Json]:
        request = feeds.ListRoutersRequest(project=PROJECT)
        for end, name in params.items():
            setattr(request, end, topic_path(name))
        response = self.call("ListRouters", request)
        return [router_of(router) for router in response.routers]

    def delete_router(self, name: str) -> Json:
        try:
            self.get_router(name)
        except FaceError as error:
            if error.status != 404:
                raise
            return {"router": name, "deleted": False}
        self.call("DeleteRouter", feeds.DeleteRouterRequest(name=router_path(name)))
        return {"router": name, "deleted": True}

    # ---- watching ------------------------------------------------------------------------------

    def watch(self, topics: Mapping[str, Json], **options: Any) -> GrpcWatch:
        include_data = options.get("include_data", True)
        spec = feeds.WatchSpec(
            exclude_node=options.get("node", ""),
            max_messages=options.get("limit", 0),
            max_bytes=options.get("max_batch_bytes", 0),
            include_data=include_data,
        )
        if "heartbeat_ms" in options:
            spec.heartbeat.FromMilliseconds(options["heartbeat_ms"])
        for name, start in topics.items():
            spec.topics[topic_path(name)].CopyFrom(to_position(start))
        tags = options.get("include_tags", not include_data)
        return GrpcWatch(self.channel, spec, data=include_data, tags=tags)


class GrpcWatch:
    """A watch over gRPC. A thread reads its stream, so that `next` can have a timeout."""

    def __init__(
        self, channel: grpc.Channel, spec: feeds.WatchSpec, *, data: bool, tags: bool
    ) -> None:
        rpc = BY_METHOD["Watch"]
        self._start = channel.unary_stream(
            rpc.path,
            request_serializer=rpc.request.SerializeToString,
            response_deserializer=rpc.response.FromString,
        )
        self._view = {"data": data, "tags": tags}
        opened = self._open(feeds.WatchRequest(spec=spec))
        self.wid: str = opened.watch_id
        self.session_ttl_ms: int = opened.session_ttl.ToMilliseconds()
        self.topics = {
            short(name): {
                "from_seq": start.after_seq,
                "head_seq": start.head_seq,
                "earliest_seq": start.earliest_seq,
            }
            for name, start in opened.topics.items()
        }

    def _open(self, request: feeds.WatchRequest) -> feeds.Frame.Opened:
        frames: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._frames = frames
        self._call = call = self._start(request)

        def read() -> None:
            try:
                for frame in call:
                    frames.put(frame)
                frames.put(None)
            except grpc.RpcError as error:
                frames.put(error)

        threading.Thread(target=read, daemon=True).start()
        return self._next(TIMEOUT).opened

    def _next(self, timeout: float) -> feeds.Frame:
        try:
            frame = self._frames.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no event within {timeout} s") from None
        if frame is None:
            raise StopIteration
        if isinstance(frame, grpc.RpcError):
            raise face_error(frame)
        assert isinstance(frame, feeds.Frame)
        return frame

    def next(self, timeout: float = TIMEOUT) -> Event:
        return self._told(self._next(timeout))

    def close(self) -> None:
        self._call.cancel()

    def reopen(self, last_event_id: str | None = None) -> None:
        self._call.cancel()
        self._open(feeds.WatchRequest(watch_id=self.wid, resume_token=last_event_id or ""))

    def _told(self, frame: feeds.Frame) -> Event:
        kind = frame.WhichOneof("kind")
        if kind == "heartbeat":
            return ("hb", frame.resume_token, None)
        content: Json = {}
        if kind == "messages":
            content = self._records(frame.messages)
        elif kind == "gap":
            content = tombstone_of(frame.gap)
        elif kind == "caught_up":
            content = {"head_seq": frame.caught_up.head_seq}
        topic = short(getattr(frame, str(kind)).topic)
        return (_EVENTS[str(kind)], frame.resume_token, {"topic": topic, **content})

    def _records(self, messages: feeds.Frame.Messages) -> Json:
        return {
            "records": records_of(messages.messages, **self._view),
            "from_seq": messages.from_seq,
            "to_seq": messages.to_seq,
            "head_seq": messages.head_seq,
        }
