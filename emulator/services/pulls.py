"""pullstream.pulls.v1.Pulls: the numbers of a subscription, and its limit of waiting pulls."""

from __future__ import annotations

from emulator.engine import Engine
from protocol.messages import pulls_pb2 as pulls


class PullsService:
    """See emulator/engine/pulls.py. The pulls themselves are Google's: subscriber.py."""

    def __init__(self, engine: Engine) -> None:
        self._pulls = engine.pulls
        self.set_max_waiting = engine.pulls.set_max_waiting

    def get_subscription_state(
        self, request: pulls.GetSubscriptionStateRequest
    ) -> pulls.SubscriptionState:
        return self._pulls.state(request.subscription)
