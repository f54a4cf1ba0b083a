"""Channels: long polls at an application's own publisher, on both server kinds (C0.12 to C0.29)."""

from __future__ import annotations

import math

from pullstream import ChannelLimits, ChannelPublisher
from pullstream_protocol.clock import ManualClock
from tests.subscriber.streaming.fakes import TIMEOUT, eventually

from .channel_peers import BareSubscriber, data_of
from .channel_servers import Serve, on_both_servers


@on_both_servers
def test_a_channel_server_gives_an_idle_poll_an_empty_answer_before_its_deadline_c0_12(
    serve: Serve, early_answers: float
) -> None:
    """Each poll is answered before its own deadline. The order of the polls does not matter."""
    publisher = ChannelPublisher()
    with serve(publisher) as endpoint:
        timeouts = (3 * TIMEOUT, early_answers + 0.8, early_answers + 0.5)
        ones = [BareSubscriber(endpoint, str(timeout)) for timeout in timeouts]
        for one in ones:
            one.subscribe("c", "a")
        late, *polls = [one.begin_poll(timeout=float(one.subscriber_id)) for one in ones]
        for poll in polls:
            assert list(poll.result().items) == []
        eventually(lambda: publisher.statistics().parked == 1)
        assert not late.done()
        for one in ones:
            one.close()


@on_both_servers
def test_a_channel_poll_may_have_no_deadline_c0_12(serve: Serve) -> None:
    """Neither the client nor the server needs a deadline."""
    publisher = ChannelPublisher(limits=ChannelLimits(subscriber_timeout=math.inf))
    with serve(publisher) as endpoint:
        direct = BareSubscriber(endpoint)
        direct.subscribe("c", "a")
        poll = direct.begin_poll(timeout=None)
        eventually(lambda: publisher.statistics().parked == 1)
        publisher.publish("c", "a", "x")
        assert data_of(poll.result(TIMEOUT).items) == ["x"]
        direct.close()


@on_both_servers
def test_a_channel_server_ends_the_first_poll_of_a_subscriber_when_a_second_begins_c0_17(
    serve: Serve,
) -> None:
    publisher = ChannelPublisher()
    with serve(publisher) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", "a")
        first = bare.begin_poll()
        eventually(lambda: publisher.statistics().parked == 1)
        second = bare.begin_poll()
        assert list(first.result().items) == []
        publisher.publish("c", "a", "x")
        assert data_of(second.result().items) == ["x"]
        bare.close()


@on_both_servers
def test_a_channel_server_gives_the_poll_of_an_inactive_subscriber_an_empty_answer_c0_26(
    clock: ManualClock, serve: Serve
) -> None:
    publisher = ChannelPublisher(clock=clock)
    with serve(publisher) as endpoint:
        bare = BareSubscriber(endpoint)
        poll = bare.begin_poll()
        eventually(lambda: publisher.statistics().parked == 1)
        clock.advance(300)
        assert list(poll.result().items) == []
        assert publisher.statistics().subscribers == 1
        bare.close()


@on_both_servers
def test_the_channel_poll_of_a_disconnected_caller_takes_no_messages_c0_29(serve: Serve) -> None:
    """The caller's poll is cancelled. Messages published after that go to the next poll."""
    publisher = ChannelPublisher()
    with serve(publisher) as endpoint:
        bare = BareSubscriber(endpoint)
        bare.subscribe("c", "a")
        poll = bare.begin_poll()
        eventually(lambda: publisher.statistics().parked == 1)
        poll.cancel()
        eventually(lambda: publisher.statistics().parked == 0)
        publisher.publish("c", "a", "x")
        assert data_of(bare.poll()) == ["x"]
        bare.unregister()
        assert publisher.statistics().subscribers == 0
        bare.close()
