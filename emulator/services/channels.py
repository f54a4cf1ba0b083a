"""pullstream.channels.v1.Channels over the broker's topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.empty_pb2 import Empty

from emulator.access.caller import caller
from emulator.engine.observer import Observer, Resource
from emulator.engine.record import Record
from protocol.channels import ChannelPublisher, long_poll
from protocol.clock import Clock
from protocol.messages import channels_pb2 as channels

from .context import Context


class ChannelsService(Observer):
    """A ChannelPublisher whose channels are the topics, and whose keys are the ordering keys.

    It hears from the engine what is published, as an observer. What is published on a topic
    without listeners is counted, and no more. A session is that principal's who has begun it.
    Nothing of it is durable: when the server stops, the sessions are over, and who comes back
    begins anew.

    Args:
        topic_exists: whether there is a topic of that name.
    """

    def __init__(self, clock: Clock, topic_exists: Callable[[str], bool]) -> None:
        self._publisher = publisher = ChannelPublisher(_Topics(topic_exists), clock=clock)
        self._is_wanted = publisher.is_wanted
        # What the publisher has not counted yet: most topics have no listeners, and should cost
        # nothing.
        self._unheard = 0
        self.statistics = publisher.statistics
        self.next_due = publisher.next_due
        self.advance = publisher.advance
        self.forget_all = publisher.forget_all

    @property
    def on_due(self) -> Callable[[float], None]:
        """Called with a moment when `advance` has something to do then, as it had not before."""
        return self._publisher.on_due

    @on_due.setter
    def on_due(self, on_due: Callable[[float], None]) -> None:
        self._publisher.on_due = on_due

    # ---- calls ---------------------------------------------------------------------------------

    def commands(self, request: channels.CommandsRequest) -> channels.CommandsResponse:
        return self._publisher.commands(request, caller())

    async def poll(self, request: channels.PollRequest, context: Context) -> None:
        # It stays in the mailbox until the next poll says that it has arrived.
        await context.write(await long_poll(self._publisher, request, context, caller()))

    def unregister(self, request: channels.UnregisterRequest) -> Empty:
        self._publisher.unregister(request, caller())
        return Empty()

    def publish_failure(self, request: channels.PublishFailureRequest) -> Empty:
        key = request.key if request.HasField("key") else None
        self._publisher.publish_failure(request.channel, key, request.reason)
        return Empty()

    # ---- as observer ---------------------------------------------------------------------------

    def published(self, topic: str, records: Sequence[Record]) -> None:
        if not self._is_wanted(topic):
            self._unheard += len(records)
            return
        self._publisher.pass_over(self._unheard)
        self._unheard = 0
        for record in records:
            self._publisher.publish_encoded(topic, record.ordering_key, _encoded(record))

    def removed(self, kind: Resource, name: str) -> None:
        if kind is Resource.TOPIC:
            self._publisher.channel_gone(name, "The topic was deleted.")


def _encoded(record: Record) -> Callable[[int], bytes]:
    return lambda _seq: record.encoded


class _Topics:
    """The names of the broker's topics, as something with an `in`."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists

    def __contains__(self, name: object) -> bool:
        return self._exists(str(name))
