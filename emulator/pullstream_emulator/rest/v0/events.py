"""Frames of a watch as server-sent events.

An event ends with an empty line. Its id, if any, is the resume token: the positions in all topics
after it. A heartbeat is a comment and changes no position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pullstream_emulator.rest.http_request import to_json
from pullstream_protocol.messages import encoded_pb2 as encoded

from .reading import tombstone
from .records import View, to_array

# Delay before a client reconnects, in milliseconds; the first line of a stream.
RETRY = "retry: 2000\n\n"

HEARTBEAT = ": hb\n\n"


@dataclass(frozen=True)
class Presentation:
    """The form of a watch's events.

    Attributes:
        names: The creator's name for each topic.
        view: The parts of records to include.
    """

    names: Mapping[str, str]
    view: View

    def event(self, frame: encoded.EncodedFrame) -> str:
        """Return the text of the event for a frame."""
        match frame.WhichOneof("kind"):
            case "opened":
                return RETRY
            case "messages":
                return self._event(frame, "record", self._records(frame.messages))
            case "gap":
                topic = self.names[frame.gap.topic]
                return self._event(frame, "tombstone", {"topic": topic, **tombstone(frame.gap)})
            case "caught_up":
                topic = self.names[frame.caught_up.topic]
                content = {"topic": topic, "head_seq": frame.caught_up.head_seq}
                return self._event(frame, "caught-up", content)
            case "topic_deleted":
                topic = self.names[frame.topic_deleted.topic]
                return self._event(frame, "topic-deleted", {"topic": topic})
        return HEARTBEAT

    def _records(self, messages: encoded.EncodedFrame.EncodedMessages) -> dict[str, Any]:
        return {
            "topic": self.names[messages.topic],
            "records": to_array(list(messages.messages), self.view),
            "from_seq": messages.from_seq,
            "to_seq": messages.to_seq,
            "head_seq": messages.head_seq,
        }

    @staticmethod
    def _event(frame: encoded.EncodedFrame, name: str, content: Mapping[str, Any]) -> str:
        return f"id: {frame.resume_token}\n{event(name, content)}"


def event(name: str, content: Mapping[str, Any]) -> str:
    """Return the text of an event without an id."""
    return f"event: {name}\ndata: {to_json(content)}\n\n"
