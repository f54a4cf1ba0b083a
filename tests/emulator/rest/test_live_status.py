"""The status of many resources: computed in slices, once for all readers, and sent as changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from pullstream_emulator import Emulator
from pullstream_emulator.engine import Engine
from pullstream_emulator.rest.live_status import KEPT_VERSIONS, SLICE, LiveStatus
from pullstream_protocol.clock import ManualClock
from pullstream_protocol.messages import pubsub_pb2 as pubsub

COUNT = 5 * SLICE


def everything(_project: str) -> bool:
    return True


def topic(number: int, project: str = "p") -> str:
    return f"projects/{project}/topics/topic-{number}"


def populated(count: int = COUNT) -> tuple[Engine, LiveStatus]:
    broker = Emulator(clock=ManualClock()).broker
    for number in range(count):
        broker.engine.create_topic(pubsub.Topic(name=topic(number)))
    return broker.engine, LiveStatus(broker)


def content(members: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(f"{{{members}}}")
    return parsed


async def turns_during(work: Callable[[], Awaitable[object]]) -> int:
    """Return how often another task runs while `work` does."""
    running = asyncio.ensure_future(work())
    turns = 0
    while not running.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_the_broker_serves_other_calls_while_it_computes_a_large_live_status() -> None:
    """Neither the computation nor the text of the whole status is one step of the event loop."""
    _, live = populated()
    assert asyncio.run(turns_during(live.refresh)) > COUNT // SLICE
    assert asyncio.run(turns_during(lambda: live.whole(everything))) > COUNT // SLICE


async def test_simultaneous_readers_of_the_live_status_share_one_computation() -> None:
    """Readers at the same time share it, and those that accept an older status."""
    _, live = populated()
    await asyncio.gather(*(live.refresh() for _ in range(5)))
    await asyncio.gather(*(live.refresh(60.0) for _ in range(5)))
    assert live.version == 1


def test_a_live_status_read_contains_changes_made_after_a_running_computation_began() -> None:
    """A caller sees every change that it knows of."""

    async def read() -> str:
        running = asyncio.ensure_future(live.refresh())
        for _ in range(3):
            await asyncio.sleep(0)
        engine.create_topic(pubsub.Topic(name=topic(0, "a")))
        await live.refresh()
        await running
        return await live.whole(everything)

    engine, live = populated()
    assert content(asyncio.run(read()))["topics"][0]["name"] == topic(0, "a")


async def test_a_reader_of_the_live_status_gets_all_changes_since_its_known_version() -> None:
    """Readers with different versions get different changes, from the projects that they see."""
    engine, live = populated(3)
    await live.refresh()
    engine.publish(
        pubsub.PublishRequest(topic=topic(1), messages=[pubsub.PubsubMessage(data=b"a")])
    )
    await live.refresh()
    engine.delete_topic(topic(2))
    engine.create_topic(pubsub.Topic(name=topic(0, "other")))
    await live.refresh()
    (part,) = content(live.changes(1, everything)).values()
    assert [each["name"] for each in part["changed"]] == [topic(1), topic(0, "other")]
    assert part["removed"] == [topic(2)]
    (part,) = content(live.changes(2, lambda project: project == "other")).values()
    assert ([each["name"] for each in part["changed"]], part["removed"]) == (
        [topic(0, "other")],
        [],
    )
    assert content(live.changes(3, everything)) == {}


async def test_the_live_status_forgets_removed_resources_after_a_fixed_number_of_versions() -> None:
    """A reader that has not read for a minute gets the whole status."""
    engine, live = populated(2)
    await live.refresh()
    engine.delete_topic(topic(1))
    for _ in range(KEPT_VERSIONS + 1):
        await live.refresh()
    assert not live.has_changes_since(1)
    assert content(live.changes(1, everything)) == {}
