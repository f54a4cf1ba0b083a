"""The session of a watch after a broken stream: the next request, and the end."""

from __future__ import annotations

import pytest

from pullstream.feeds import CaughtUp, Gap, GapReason, Opened, Records, TopicDeleted
from pullstream.logs.feeds.resumable_watch import ResumableWatch
from pullstream_protocol.errors import InvalidArgument, NotFound, ResourceExhausted, Unavailable
from pullstream_protocol.messages import feeds_pb2 as feeds
from tests.subscriber.feeding import HEARTBEAT, NEWS, OLDS, deleted, gap, opened, records


def session(*topics: str, token: str = "") -> ResumableWatch:
    spec = feeds.WatchSpec(exclude_node="me")
    for topic in topics or (NEWS,):
        spec.topics[topic].tail = True
    return ResumableWatch(spec, token)


def handle(one: ResumableWatch, *frames: feeds.Frame) -> None:
    for frame in frames:
        one.received(frame)
        one.handled(frame)


def test_the_first_request_of_a_watch_contains_the_arguments_of_the_watch_call() -> None:
    """The request has a token of an earlier watch."""
    request = session(NEWS, token="earlier").request()
    assert request.spec.topics[NEWS].tail
    assert request.spec.exclude_node == "me"
    assert (request.watch_id, request.resume_token) == ("", "earlier")


def test_a_resumed_watch_begins_after_the_last_frame_that_the_handler_has_processed() -> None:
    """Frames that were only received do not count."""
    one = session()
    handle(one, opened({NEWS: 4}), records(NEWS, 5, 6))
    one.received(records(NEWS, 7))
    assert 1.0 <= one.broken(Unavailable("gone")) <= 2.0
    assert one.request() == feeds.WatchRequest(watch_id="w-1", resume_token=f"{NEWS}@6")


def test_a_watch_without_a_resume_token_restarts_at_the_start_of_its_first_session() -> None:
    """The tail and the session's own position have moved on since then."""
    one = session(NEWS, OLDS)
    handle(one, opened({NEWS: 4, OLDS: 0}))
    one.received(records(NEWS, 5))
    one.broken(None)
    request = one.request()
    assert (request.watch_id, request.resume_token) == ("", "")
    assert request.spec.topics[NEWS] == feeds.Position(after_seq=4, epoch=7)
    assert request.spec.topics[OLDS] == feeds.Position(after_seq=0, epoch=7)


def test_a_watch_can_resume_with_the_resume_token_of_the_opening_frame() -> None:
    """The token is the beginning of the session."""
    one = session()
    handle(one, opened({NEWS: 4}, token="at 4"))
    one.broken(None)
    assert one.request() == feeds.WatchRequest(watch_id="w-1", resume_token="at 4")


def test_a_watch_recreates_at_once_a_session_that_the_broker_has_forgotten() -> None:
    """The new session has the token, the same topics and the same filters."""
    spec = feeds.WatchSpec()
    spec.topics[NEWS].CopyFrom(feeds.Position(tail=True, filter='attributes.tag = "x"'))
    one = ResumableWatch(spec)
    handle(one, opened({NEWS: 4}), records(NEWS, 5))
    one.broken(Unavailable("restarted"))
    one.request()
    assert one.broken(NotFound("no such watch")) == 0.0
    request = one.request()
    assert request.watch_id == ""
    assert request.resume_token == f"{NEWS}@5"
    assert request.spec.topics[NEWS].filter == 'attributes.tag = "x"'


def test_a_watch_pauses_before_it_recreates_a_session_that_ended_during_its_stream() -> None:
    """Without a pause, a broker that ends each session would get one request after the other."""
    one = session()
    handle(one, opened({NEWS: 4}), records(NEWS, 5))
    assert one.broken(NotFound("the watch is over")) >= 1.0
    assert one.request().watch_id == ""


def test_a_watch_of_a_missing_topic_ends_with_an_error() -> None:
    """The topic is missing at first, or it is gone together with the session."""
    one = session()
    with pytest.raises(NotFound):
        one.broken(NotFound("no such topic"))
    handle(one, opened({NEWS: 4}), records(NEWS, 5))
    one.broken(NotFound("no such watch"))
    one.request()
    with pytest.raises(NotFound):
        one.broken(NotFound("no such topic"))


def test_a_watch_ends_on_a_permanent_error_and_reconnects_after_a_transient_error() -> None:
    """A wrong request is permanent. A broker without room may have some later."""
    with pytest.raises(InvalidArgument):
        session().broken(InvalidArgument("no such filter"))
    assert session().broken(ResourceExhausted("too many sessions")) > 0


def test_watch_retry_pauses_grow_while_no_frame_arrives() -> None:
    """Pauses grow from two seconds, as brokers request, to thirty, each shortened by up to half."""
    one = session()
    pauses = [one.broken(Unavailable("down")) for _ in range(8)]
    for pause, longest in zip(pauses, [2, 4, 8, 16, 30, 30, 30, 30], strict=True):
        assert longest / 2 <= pause <= longest
    one.received(opened({NEWS: 0}))
    assert one.broken(None) <= 2


def test_a_watch_does_not_request_a_deleted_topic_again_when_it_reconnects() -> None:
    """The watch ends with its last topic."""
    one = session(NEWS, OLDS)
    handle(one, opened({NEWS: 4, OLDS: 2}), deleted(NEWS))
    assert not one.is_over
    one.broken(None)
    one.request()
    one.broken(NotFound("no such watch"))
    assert list(one.request().spec.topics) == [OLDS]
    handle(one, opened({OLDS: 2}), deleted(OLDS))
    assert one.is_over


def test_a_watch_reports_the_deletion_of_a_topic_once_even_if_its_frame_is_repeated() -> None:
    """A broker reports it on every stream, because the last one may have broken before."""
    one = session(NEWS, OLDS)
    handle(one, opened({NEWS: 4, OLDS: 2}), deleted(NEWS))
    assert one.received(deleted(NEWS)) is None


def test_each_kind_of_watch_frame_reaches_the_handler_as_an_object_of_its_own_class() -> None:
    """Each kind of frame that a handler needs has a class. A heartbeat has none."""
    one = session()
    start = one.received(opened({NEWS: 4}))
    assert isinstance(start, Opened)
    assert start.topics[NEWS].after_seq == 4
    some = one.received(records(NEWS, 5, 6))
    assert isinstance(some, Records)
    assert (some.topic, some.from_seq, some.to_seq, some.head_seq) == (NEWS, 4, 6, 6)
    assert [message.message_id for message in some.messages] == ["5", "6"]
    lost = one.received(gap(NEWS, 7, 9, feeds.GapReason.CAP))
    assert lost == Gap(NEWS, 7, 9, GapReason.CAP, GapReason.UNKNOWN, 0, 0)
    wire = feeds.Frame(caught_up=feeds.Frame.CaughtUp(topic=NEWS, head_seq=9))
    wire.caught_up.time.FromSeconds(60)
    now = one.received(wire)
    assert isinstance(now, CaughtUp)
    assert (now.topic, now.head_seq, now.time.isoformat()) == (NEWS, 9, "1970-01-01T00:01:00+00:00")
    assert one.received(deleted(NEWS)) == TopicDeleted(NEWS)
    assert one.received(HEARTBEAT) is None


def test_a_watch_skips_frames_of_an_unknown_kind_and_reports_unknown_reasons_as_unknown() -> None:
    """An unknown frame is skipped, but its token counts. An unknown reason becomes UNKNOWN."""
    one = session()
    assert one.received(feeds.Frame(resume_token="later")) is None
    assert one.resume_token == "later"
    wire = gap(NEWS, 1, 2, feeds.GapReason.CAP)
    wire.gap.reason = 99  # type: ignore[assignment]
    lost = one.received(wire)
    assert isinstance(lost, Gap)
    assert lost.reason is GapReason.UNKNOWN


def test_the_gap_reasons_of_watch_frames_have_the_names_of_the_protocol() -> None:
    """All reasons have the same names."""
    named = {number: name for name, number in feeds.GapReason.items()}
    named[0] = "UNKNOWN"
    assert {reason.value: reason.name for reason in GapReason} == named
