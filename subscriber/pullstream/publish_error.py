"""The message IDs of a response to Publish, and the error if they are invalid."""

from __future__ import annotations

from collections.abc import Sequence

from google.api_core.exceptions import GoogleAPICallError

from pullstream_protocol.errors import PullstreamError
from pullstream_protocol.messages import pubsub_pb2 as pubsub


class PublishError(PullstreamError, GoogleAPICallError):
    """Some messages of a `publish_many` were not published, or a response has no valid IDs.

    Attributes:
        message_ids: For each message its ID, or None if the message is not confirmed.
        causes: The errors of the failed requests.
        may_have_succeeded: Whether unconfirmed messages may be stored all the same.
    """

    def __init__(
        self,
        message: str,
        message_ids: Sequence[str | None] = (),
        causes: Sequence[BaseException] = (),
    ) -> None:
        """Create the error.

        Args:
            message: The text.
            message_ids: For each message its ID, or None if the message is not confirmed.
            causes: The errors of the failed requests.
        """
        # google-api-core's constructor has no annotations.
        super().__init__(message)  # type: ignore[no-untyped-call]
        self.message_ids: list[str | None] = list(message_ids)
        self.causes: list[BaseException] = list(causes)
        # Without causes, the server has answered, but with invalid IDs.
        self.may_have_succeeded: bool = not causes or any(
            getattr(cause, "may_have_succeeded", False) for cause in causes
        )

    def __str__(self) -> str:
        # The base class would begin with the number of a status, which this error has not.
        return str(self.message)


def confirmed_ids(response: pubsub.PublishResponse, count: int, topic: str) -> list[str]:
    """Return the message IDs of a response.

    Args:
        response: The response.
        count: Number of messages in the request.
        topic: Full name of the topic.

    Raises:
        PublishError: The IDs do not identify the messages.
    """
    ids = list(response.message_ids)
    distinct = set(ids)
    if len(ids) == len(distinct) == count and "" not in distinct:
        return ids
    problem = (
        f"{len(ids)} message IDs" if len(ids) != count else "message IDs that are empty or repeated"
    )
    raise PublishError(
        f"the server returned {problem} for {count} messages to {topic}; the messages may be stored"
    )
