"""Channels: access tokens, faults, and the data that a broker with a data directory keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from pullstream import Reset, SubscriberClient
from pullstream.listen.events import ListenEvent
from pullstream_emulator import Emulator
from pullstream_emulator.access import Access, Principal
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.errors import Unavailable
from pullstream_protocol.messages import channels_pb2 as channels
from pullstream_protocol.rpcs import BY_METHOD
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

from .channel_peers import (
    BILLS,
    ORDERS,
    BareSubscriber,
    Heard,
    create_topics,
    data_of,
    statistics,
)


def test_a_callers_token_gives_access_only_to_channels_of_the_callers_projects(
    clock: ManualClock,
) -> None:
    """A batch that also names a channel of another project is refused as a whole."""
    access = Access({"t": Principal("tester", frozenset({"test"}))})
    with Emulator(clock=clock, access=access) as emulator:
        create_topics(emulator)
        with grpc.insecure_channel(emulator.endpoint) as channel:

            def call(method: str, request: Any, token: str = "t") -> Any:
                rpc = BY_METHOD[method]
                stub: Any = channel.unary_unary(
                    rpc.path, rpc.request.SerializeToString, rpc.response.FromString
                )
                metadata = (("authorization", f"Bearer {token}"),)
                return stub(request, timeout=TIMEOUT, metadata=metadata)

            request = channels.CommandsRequest(subscriber_id="one", batch_no=1, replace=True)
            request.commands.add(channel=ORDERS, subscribe=True)
            assert call("Commands", request).applied
            request.commands.add(channel="projects/other/topics/orders", subscribe=True)
            foreign = channels.PublishFailureRequest(channel="projects/other/topics/orders")
            for method, refused in (("Commands", request), ("PublishFailure", foreign)):
                with pytest.raises(grpc.RpcError) as raised:
                    call(method, refused)
                assert isinstance(raised.value, grpc.Call)
                assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
            with pytest.raises(grpc.RpcError):
                call("Poll", channels.PollRequest(subscriber_id="one"), token="other")
        assert statistics(emulator).interests == 1


def test_a_caller_cannot_use_the_channel_session_of_another_principal(clock: ManualClock) -> None:
    """A caller that knows the session's ID and may use the same project is refused, too."""
    both = frozenset({"test"})
    access = Access({"t": Principal("tester", both), "o": Principal("other", both)})
    with Emulator(clock=clock, access=access) as emulator:
        create_topics(emulator)
        mine = BareSubscriber(emulator.endpoint, "one", token="t")
        strange = BareSubscriber(emulator.endpoint, "one", token="o")
        mine.subscribe(ORDERS, "a")
        emulator.publish(ORDERS, "x", ordering_key="a")
        strange.incarnation = mine.incarnation
        assert strange.poll(1) == []
        strange.unregister()
        assert data_of(mine.poll()) == ["x"]
        mine.close()
        strange.close()


def test_a_fault_for_a_topic_affects_only_channel_commands_that_name_the_topic(
    broker: Emulator, client: SubscriberClient
) -> None:
    """A fault for a topic affects the commands that name the topic, and no others."""
    fault = broker.faults.error("Commands", Unavailable("not orders"), resource="orders")
    heard, failed = Heard(), Heard()
    heard.subscribe(client.listen(), BILLS)
    failed.subscribe(client.listen(give_up_after=0.2), ORDERS)
    assert (heard.done, len(failed.failures)) == ([None], 1)
    assert fault.hits > 0


def test_channel_listeners_continue_after_a_restart_of_a_broker_with_a_data_directory(
    tmp_path: Path,
) -> None:
    """The topics exist again. The sessions do not, and the listeners are notified."""
    events: list[ListenEvent] = []
    with Emulator(data_dir=tmp_path) as emulator:
        create_topics(emulator)
        with SubscriberClient(endpoint=emulator.endpoint) as client:
            heard = Heard()
            heard.subscribe(client.listen(events.append), ORDERS, "a")
            emulator.stop()
            emulator.start()
            eventually(lambda: events == [Reset()])
            eventually(lambda: statistics(emulator).interests == 1)
            emulator.publish(ORDERS, "x", ordering_key="a")
            heard.wait_for("x")
