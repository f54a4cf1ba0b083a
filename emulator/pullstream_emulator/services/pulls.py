"""pullstream.pulls.v1.Pulls: statistics of a subscription, and its limit of waiting Pull calls."""

from __future__ import annotations

from collections.abc import Mapping

from pullstream_emulator.engine import Engine
from pullstream_protocol.messages import pulls_pb2 as pulls
from pullstream_protocol.rpcs import PULLS

from .rpc_methods import RpcMethod, UnaryMethod


class PullsService:
    """Statistics and limits of Pull calls (engine.PullCalls).

    The Pull call itself is part of google.pubsub.v1, see subscriber.py.
    """

    service = PULLS

    def __init__(self, engine: Engine) -> None:
        self._pulls = engine.pulls

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name, without Pull, which is in SubscriberService."""
        return {
            "GetSubscriptionState": UnaryMethod(self.get_subscription_state),
            "SetMaxWaiting": UnaryMethod(self._pulls.set_max_waiting),
        }

    def get_subscription_state(
        self, request: pulls.GetSubscriptionStateRequest
    ) -> pulls.SubscriptionState:
        """Return the counts of pending and leased messages, of waiting calls, and of streams."""
        return self._pulls.state(request.subscription)
