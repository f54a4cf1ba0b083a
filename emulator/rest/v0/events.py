"""Frames of a watch as server-sent events.

An event ends with an empty line. Its id, where it has one, is the resume token: the positions in
all topics behind it. A heartbeat is a comment, and moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.messages import encoded_pb2 as encoded

from .json_text import to_object
from .reading import tombstone
from .records import View, to_json

# How long a client should wait before it comes back, in milliseconds: the first line of a stream.
RETRY = "retry: 2000\n\n"

HEARTBEAT = ": hb\n\n"


@dataclass(frozen=True)
class Presentation:
    """How a watch's frames are told: the names its creator has for topics, and what of records."""

    names: Mapping[str, str]
    view: View

    def event(self, frame: encoded.EncodedFrame) -> str:
        """The text of the event for a frame."""
        match frame.WhichOneof("kind"):
            case "opened":
                return RETRY
            case "messages":
                return self._told(frame, "record", self._records(frame.messages))
            case "gap":
                topic = self.names[frame.gap.topic]
                return self._told(frame, "tombstone", {"topic": topic, **tombstone(frame.gap)})
            case "caught_up":
                topic = self.names[frame.caught_up.topic]
                content = {"topic": topic, "head_seq": frame.caught_up.head_seq}
                return self._told(frame, "caught-up", content)
            case "topic_deleted":
                topic = self.names[frame.topic_deleted.topic]
                return self._told(frame, "topic-deleted", {"topic": topic})
        return HEARTBEAT

    def _records(self, messages: encoded.EncodedFrame.EncodedMessages) -> dict[str, Any]:
        return {
            "topic": self.names[messages.topic],
            "records": to_json(list(messages.messages), self.view),
            "from_seq": messages.from_seq,
            "to_seq": messages.to_seq,
            "head_seq": messages.head_seq,
        }

    @staticmethod
    def _told(frame: encoded.EncodedFrame, name: str, content: Mapping[str, Any]) -> str:
        return f"id: {frame.resume_token}\n{event(name, content)}"


def event(name: str, content: Mapping[str, Any]) -> str:
    """An event without an id."""
    return f"event: {name}\ndata: {to_object(content)}\n\n"
