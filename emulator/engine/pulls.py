"""What a subscription's pulls are doing, in numbers, and how many of them may wait."""

from __future__ import annotations

from emulator.refusals import invalid_argument
from protocol import names
from protocol.errors import ResourceExhausted
from protocol.messages import pulls_pb2 as pulls

from .consumers import MAX_WAITING
from .observer import Resource
from .registry import Registry
from .subscription import Subscription

# What max_waiting can be set to at most: each call that waits takes about 12 KiB.
MOST_WAITING = 100_000


class Pulls:
    """Tells the state of subscriptions, and keeps their limits of waiting calls."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def state(self, name: str) -> pulls.SubscriptionState:
        """The numbers of one subscription now.

        Finding the oldest unfinished message looks at what is leased and what comes again, and not
        at the backlog, unless that has ordering keys.
        """
        return _state(self._registry.subscription(name))

    def set_max_waiting(self, request: pulls.SetMaxWaitingRequest) -> pulls.SubscriptionState:
        """Let so many calls wait from now on; more than that which wait already go on waiting.

        Raises:
            InvalidArgument: max_waiting is not between 1 and MOST_WAITING.
        """
        subscription = self._registry.subscription(request.subscription)
        if not 1 <= request.max_waiting <= MOST_WAITING:
            raise invalid_argument(
                f"max_waiting: {request.max_waiting} is not between 1 and {MOST_WAITING}"
            )
        before = subscription.consumers.max_waiting
        subscription.consumers.max_waiting = request.max_waiting
        observer = self._registry.observer
        if observer is not None and request.max_waiting != MAX_WAITING:
            observer.saved(Resource.PULLS, subscription.name, request.SerializeToString())
        elif observer is not None and before != MAX_WAITING:
            # What is as it was in the beginning need not be kept.
            observer.removed(Resource.PULLS, subscription.name)
        return _state(subscription)

    def check_room(self, subscription: Subscription) -> None:
        """A pull has found nothing, and is counted among those that wait: may it?

        Raises:
            ResourceExhausted: max_waiting of them wait already.
        """
        consumers = subscription.consumers
        if consumers.waiting_pulls > consumers.max_waiting:
            raise ResourceExhausted(
                f"Too many pull requests wait on {names.short_id(subscription.name)}; "
                f"the maximum is {consumers.max_waiting}."
            )

    def restore(self, name: str, value: bytes) -> None:
        """Take up a limit that an observer was told of; tells the observer nothing."""
        limit = pulls.SetMaxWaitingRequest.FromString(value).max_waiting
        self._registry.subscription(name).consumers.max_waiting = limit


def _state(subscription: Subscription) -> pulls.SubscriptionState:
    consumers, leases = subscription.consumers, subscription.messages.leases
    leased = leases.values()
    state = pulls.SubscriptionState(
        subscription=subscription.name,
        max_waiting=consumers.max_waiting,
        num_waiting=consumers.waiting_pulls,
        num_ack_pending=len(leased),
        max_deliver=subscription.terms.max_attempts or -1,
        num_redelivered=sum(delivery.attempts > 0 for delivery in leased),
        num_pending=subscription.messages.pending,
        num_streams=consumers.streams,
    )
    state.ack_wait.seconds = subscription.config.ack_deadline_seconds
    state.delivered.consumer_seq = leases.granted
    state.delivered.stream_seq = leases.newest_seq
    oldest = min((delivery.number for delivery in leased), default=leases.granted + 1)
    state.ack_floor.consumer_seq = oldest - 1
    state.ack_floor.stream_seq = subscription.messages.floor
    return state
