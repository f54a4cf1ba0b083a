"""Frames as a broker sends them, and streams of them that a test plays by hand."""

from __future__ import annotations

import queue
from collections.abc import Mapping

from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.failed_call import FailedCall
from tests.subscriber.streaming.fakes import TIMEOUT
from tests.subscriber.streaming.scripted_stream import ScriptedResponses

NEWS = "projects/p/topics/news"
OLDS = "projects/p/topics/olds"


def opened(
    starts: Mapping[str, int], *, watch_id: str = "w-1", epoch: int = 7, token: str = ""
) -> feeds.Frame:
    """Return a first frame with the number after which each topic begins."""
    topics = {
        topic: feeds.Frame.Start(after_seq=seq, head_seq=seq, earliest_seq=1, epoch=epoch)
        for topic, seq in starts.items()
    }
    frame = feeds.Frame.Opened(watch_id=watch_id, topics=topics)
    return feeds.Frame(opened=frame, resume_token=token)


def records(topic: str, *seqs: int) -> feeds.Frame:
    """Return messages with these numbers. The token has the last of them."""
    return feeds.Frame(
        resume_token=f"{topic}@{seqs[-1]}",
        messages=feeds.Frame.Messages(
            topic=topic,
            messages=[pubsub.PubsubMessage(message_id=str(seq)) for seq in seqs],
            from_seq=seqs[0] - 1,
            to_seq=seqs[-1],
            head_seq=seqs[-1],
        ),
    )


def gap(topic: str, first: int, last: int, reason: feeds.GapReason) -> feeds.Frame:
    return feeds.Frame(
        resume_token=f"{topic}@{last}",
        gap=feeds.Gap(topic=topic, from_seq=first, to_seq=last, reason=reason),
    )


def deleted(topic: str) -> feeds.Frame:
    return feeds.Frame(
        resume_token=f"{topic}@gone", topic_deleted=feeds.Frame.TopicDeleted(topic=topic)
    )


HEARTBEAT = feeds.Frame(heartbeat=feeds.Frame.Heartbeat())


class Stream(ScriptedResponses):
    """One Watch call: yields the frames of the test, until the test or the reader ends it."""

    def __init__(self, request: feeds.WatchRequest) -> None:
        super().__init__()
        self.request = request

    def send(self, *frames: feeds.Frame) -> None:
        for frame in frames:
            self.respond_bytes(frame.SerializeToString())

    def _as_raised(self, error: RpcError) -> Exception:
        return FailedCall.of(error)


class Streams:
    """Begins Watch calls, and passes them to the test in order."""

    def __init__(self) -> None:
        self._begun: queue.SimpleQueue[Stream] = queue.SimpleQueue()

    def __call__(self, request: feeds.WatchRequest) -> Stream:
        copy = feeds.WatchRequest()
        copy.CopyFrom(request)
        stream = Stream(copy)
        self._begun.put(stream)
        return stream

    def next(self) -> Stream:
        """Return the next call that is begun, or fail without one."""
        return self._begun.get(timeout=TIMEOUT)
