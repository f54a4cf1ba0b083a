"""Statistics of a subscription's Pull calls, and the limit of waiting calls."""

from __future__ import annotations

from pullstream_emulator.engine.delivery.consumers import MAX_WAITING
from pullstream_emulator.engine.delivery.subscription import Subscription
from pullstream_emulator.engine.observer import Resource
from pullstream_emulator.error_texts import invalid_argument
from pullstream_protocol import names
from pullstream_protocol.errors import ResourceExhausted
from pullstream_protocol.messages import pulls_pb2 as pulls

from .registry import Registry

# The highest value of max_waiting. Each waiting call takes about 12 KiB.
MOST_WAITING = 100_000


class PullCalls:
    """Reports the state of subscriptions, and keeps their limits of waiting calls."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def state(self, name: str) -> pulls.SubscriptionState:
        """Return the present statistics of one subscription."""
        return _state(self._registry.subscription(name))

    def set_max_waiting(self, request: pulls.SetMaxWaitingRequest) -> pulls.SubscriptionState:
        """Set how many calls may wait from now on. Calls that wait already are not ended.

        Raises:
            InvalidArgument: `max_waiting` is not between 1 and MOST_WAITING.
        """
        subscription = self._registry.subscription(request.subscription)
        if not 1 <= request.max_waiting <= MOST_WAITING:
            raise invalid_argument(
                f"max_waiting: {request.max_waiting} is not between 1 and {MOST_WAITING}"
            )
        before = subscription.consumers.max_waiting
        subscription.consumers.max_waiting = request.max_waiting
        observer = self._registry.observer
        if request.max_waiting != MAX_WAITING:
            observer.saved(Resource.PULLS, subscription.name, request.SerializeToString())
        elif before != MAX_WAITING:
            # The default need not be stored.
            observer.removed(Resource.PULLS, subscription.name)
        return _state(subscription)

    def check_room(self, subscription: Subscription) -> None:
        """Check that a Pull call that found no messages may wait. It is already counted as waiting.

        Raises:
            ResourceExhausted: `max_waiting` other calls wait already.
        """
        consumers = subscription.consumers
        if consumers.waiting_pulls > consumers.max_waiting:
            raise ResourceExhausted(
                f"Too many pull requests wait on {names.short_id(subscription.name)}; "
                f"the maximum is {consumers.max_waiting}."
            )

    def restore(self, name: str, value: bytes) -> None:
        """Restore a limit that an observer recorded, without informing the observer."""
        limit = pulls.SetMaxWaitingRequest.FromString(value).max_waiting
        self._registry.subscription(name).consumers.max_waiting = limit


def _state(subscription: Subscription) -> pulls.SubscriptionState:
    consumers, leases, messages = subscription.consumers, subscription.leases, subscription.messages
    state = pulls.SubscriptionState(
        subscription=subscription.name,
        max_waiting=consumers.max_waiting,
        num_waiting=consumers.waiting_pulls,
        num_ack_pending=len(leases),
        max_deliver=subscription.policy.max_attempts or -1,
        num_redelivered=leases.redelivered,
        num_pending=messages.pending,
        num_streams=consumers.streams,
    )
    state.ack_wait.seconds = subscription.config.ack_deadline_seconds
    state.delivered.consumer_seq = leases.granted
    state.delivered.stream_seq = leases.newest_seq
    state.ack_floor.consumer_seq = leases.oldest_number - 1
    state.ack_floor.stream_seq = messages.floor
    return state
