"""pullstream.channels.v1.Channels over the broker's topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from google.protobuf.empty_pb2 import Empty

from pullstream_emulator.access.current_principal import caller
from pullstream_emulator.engine.observer import Observer, Resource
from pullstream_emulator.engine.record import Record
from pullstream_protocol.channels.handlers import long_poll
from pullstream_protocol.channels.shared_core import SharedChannelCore
from pullstream_protocol.clock import Clock
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.rpcs import CHANNELS

from .context import Context
from .rpc_methods import RpcMethod, UnaryMethod, WritingMethod


class ChannelsService(Observer):
    """A publisher whose channels are the topics, and whose keys are the ordering keys.

    It receives published messages from the engine, as an observer. Messages on a topic without
    subscribers are only counted. A session belongs to the principal that created it. Nothing is
    durable: a stop of the server ends all sessions, and clients create new ones.

    Args:
        clock: The clock of the sessions.
        topic_exists: Returns whether there is a topic with this name.
        on_due: Called with a monotonic time when new work for `advance` is due at that time.
    """

    service = CHANNELS

    def __init__(
        self, clock: Clock, topic_exists: Callable[[str], bool], on_due: Callable[[float], None]
    ) -> None:
        self._core = core = SharedChannelCore(_Topics(topic_exists), clock=clock)
        self._is_wanted = core.is_wanted
        # Number of messages that the publisher has not counted yet. They are counted later,
        # together, because most topics have no subscribers here and must not cost time.
        self._unheard = 0
        core.on_due = on_due
        self.statistics = core.statistics
        self.sessions = core.sessions
        self.next_due = core.next_due
        self.advance = core.advance
        self.forget_all = core.forget_all

    # ---- calls ---------------------------------------------------------------------------------

    def rpc_methods(self) -> Mapping[str, RpcMethod]:
        """Return the RPCs by name; only Poll may wait."""
        return {
            "Commands": UnaryMethod(self.commands),
            "Poll": WritingMethod(self.poll),
            "Unregister": UnaryMethod(self.unregister),
            "PublishFailure": UnaryMethod(self.publish_failure),
        }

    def commands(self, request: channels.CommandsRequest) -> channels.CommandsResponse:
        """Change the topics and ordering keys to which the caller's session is subscribed."""
        return self._core.commands(request, caller())

    async def poll(self, request: channels.PollRequest, context: Context) -> None:
        """Wait for items in the caller's mailbox, and write them as the response."""
        # The messages stay in the mailbox until the next poll confirms their arrival.
        await context.write(await long_poll(self._core, request, context, caller()))

    def unregister(self, request: channels.UnregisterRequest) -> Empty:
        """End the caller's session, if there is one; its waiting poll is answered."""
        self._core.unregister(request, caller())
        return Empty()

    def publish_failure(self, request: channels.PublishFailureRequest) -> Empty:
        """Send a failure to the subscribers of an ordering key, or of a whole topic."""
        key = request.key if request.HasField("key") else None
        self._core.publish_failure(request.channel, key, request.reason)
        return Empty()

    # ---- as observer ---------------------------------------------------------------------------

    def published(self, topic: str, records: Sequence[Record]) -> None:
        """Pass messages to the subscribers of their topic; only count them if it has none."""
        if not self._is_wanted(topic):
            self._unheard += len(records)
            return
        self._core.pass_over(self._unheard)
        self._unheard = 0
        for record in records:
            self._core.publish_encoded(topic, record.ordering_key, _encoded(record))

    def removed(self, kind: Resource, name: str) -> None:
        """End the subscriptions to a deleted topic; ignore other resources."""
        if kind is Resource.TOPIC:
            self._core.channel_gone(name, "The topic was deleted.")


def _encoded(record: Record) -> Callable[[int], bytes]:
    return lambda _seq: record.encoded


class _Topics:
    """The names of the broker's topics, as a container for the `in` operator."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists

    def __contains__(self, name: object) -> bool:
        return self._exists(str(name))
