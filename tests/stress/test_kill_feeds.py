"""A feed of class fsync and a router from it, killed under load: all answers stay valid."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import grpc

from pullstream_protocol.messages import feeds_pb2 as feeds
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.emulator.wire import TIMEOUT, Wire
from tests.stress.killable_broker import KillableBroker

KILLS = 4
UNDER_WAY = 6
SOURCE = "projects/test/topics/source"
COPY = "projects/test/topics/copy"


class Writer:
    """Appends numbers with several concurrent calls until the broker is gone."""

    def __init__(self) -> None:
        self.sent = 0
        # The sequence number in the answer, by number.
        self.answered: dict[int, int] = {}

    def run(self, wire: Wire, enough: threading.Event, at: int) -> None:
        under_way = [self._send(wire) for _ in range(UNDER_WAY)]
        while under_way:
            number, call = under_way.pop(0)
            try:
                self.answered[number] = call.result().first_seq
            except grpc.RpcError:
                # The broker was killed, so it is unknown whether the record is kept.
                continue
            at -= 1
            if at == 0:
                enough.set()
            under_way.append(self._send(wire))

    def _send(self, wire: Wire) -> tuple[int, Any]:
        self.sent += 1
        message = pubsub.PubsubMessage(data=str(self.sent).encode())
        request = feeds.AppendRequest(topic=SOURCE, messages=[message])
        return self.sent, wire.start("Append", request)


def everything(wire: Wire, topic: str) -> list[tuple[int, int]]:
    """Return the number and the sequence number of every record, which must have no gap."""
    found: list[tuple[int, int]] = []
    start = feeds.Position(after_seq=0)
    while True:
        request = feeds.ReadRequest(topic=topic, start=start, max_messages=1000)
        answer = wire.call("Read", request)
        assert not answer.HasField("gap"), answer.gap
        found += [(int(each.data), int(each.message_id)) for each in answer.messages]
        if answer.caught_up:
            return found
        start.after_seq = answer.next_seq


def test_kills_of_a_broker_lose_no_confirmed_feed_append_and_no_routed_copy_c2_5_c2_10(
    tmp_path: Path,
) -> None:
    """Every answered append is read once, under its number, and was copied at least once."""
    writer = Writer()
    with KillableBroker(tmp_path) as broker:
        wire = Wire(broker.start())
        wire.call("PutFeed", feeds.PutFeedRequest(topic=SOURCE))
        router = feeds.Router(name="projects/test/routers/copy", source=SOURCE, dest=COPY)
        wire.call("PutRouter", feeds.PutRouterRequest(router=router))
        epoch = wire.call("GetFeed", feeds.GetFeedRequest(topic=SOURCE)).epoch
        for life in range(KILLS):
            enough = threading.Event()
            thread = threading.Thread(target=writer.run, args=(wire, enough, 15 + 10 * life))
            thread.start()
            assert enough.wait(TIMEOUT)
            broker.kill()
            thread.join()
            wire.close()
            wire = Wire(broker.start())
        assert wire.call("GetFeed", feeds.GetFeedRequest(topic=SOURCE)).epoch == epoch
        source, copies = everything(wire, SOURCE), everything(wire, COPY)
        wire.close()
    kept = dict(source)
    assert len(kept) == len(source)
    assert writer.answered.items() <= kept.items()
    assert list(dict.fromkeys(number for number, _ in copies)) == [number for number, _ in source]
    for records in (source, copies):
        seqs = [seq for _, seq in records]
        assert seqs == sorted(set(seqs))
