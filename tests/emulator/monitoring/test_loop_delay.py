"""The event loop's delay is measured by a timer that runs late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pullstream_emulator.monitoring import loop_delay
from pullstream_emulator.monitoring.loop_delay import BOUNDS, LoopDelay


def test_the_loop_delay_metric_grows_when_a_callback_blocks_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step of 30 ms is in the interval up to 50 ms, or above on a busy machine."""
    monkeypatch.setattr(loop_delay, "INTERVAL", 0.005)

    def busy(loop: Any) -> None:
        end = loop.time() + 0.03
        while loop.time() < end:
            pass

    async def run() -> LoopDelay:
        delay = LoopDelay()
        delay.start()
        asyncio.get_running_loop().call_soon(busy, asyncio.get_running_loop())
        while not any(delay.counts):
            await asyncio.sleep(0.001)
        delay.stop()
        return delay

    delay = asyncio.run(run())
    assert sum(delay.counts[BOUNDS.index(0.025) :]) >= 1
    assert delay.total >= 0.02


@pytest.mark.parametrize(("delay", "interval"), [(0.0, 0), (0.001, 0), (0.0011, 1), (9.0, -1)])
def test_a_loop_delay_equal_to_a_histogram_bound_belongs_to_the_interval_below_the_bound(
    delay: float, interval: int
) -> None:
    """The last interval has no upper bound."""
    measured = LoopDelay()
    measured.record(delay)
    assert measured.counts[interval] == sum(measured.counts) == 1
    assert measured.total == delay
