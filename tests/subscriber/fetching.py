"""The topic and subscription of the tests of fetching, and a server that the test directs.

The broker is a fixture of conftest.py, and the server one of fetch/conftest.py.
"""

from __future__ import annotations

from typing import Any

from pullstream import SubscriberClient
from pullstream_protocol.errors import RpcError
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.scripted_server import Call, ScriptedServer

TOPIC = "projects/test-project/topics/orders"
NAME = "projects/test-project/subscriptions/billing"


class Server:
    """Has three messages, a, b and c, and a client. Refuses requests as the test orders."""

    client: SubscriberClient

    def __init__(self) -> None:
        self.refusals: list[RpcError] = []
        self.scripted = ScriptedServer(self._answer)

    def _answer(self, call: Call) -> Any:
        if call.method == "Pull":
            return pubsub.PullResponse(
                received_messages=[
                    pubsub.ReceivedMessage(
                        ack_id=each, message=pubsub.PubsubMessage(message_id=each)
                    )
                    for each in "abc"
                ]
            )
        if self.refusals:
            raise self.refusals.pop(0)
        return None

    @property
    def settled(self) -> list[tuple[str, int | None]]:
        """Return ack ids and deadline (None: acknowledged) of each call that settles or extends."""
        return [
            ("".join(call.request.ack_ids), getattr(call.request, "ack_deadline_seconds", None))
            for call in self.scripted.calls
            if call.method != "Pull"
        ]
