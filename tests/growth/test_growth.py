"""Each dimension of `make growth` runs, and none grows faster than linearly at small sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pullstream_emulator import Emulator

from .dimension import Cost, Dimension, Growth, exponent, measure
from .run import DIMENSIONS


@contextmanager
def here() -> Iterator[str]:
    """Serve a broker in this process, which starts faster."""
    with Emulator(rest=True) as emulator:
        yield emulator.endpoint


@pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda each: f"{each.side}: {each.name}")
def test_a_dimension_can_be_measured(dimension: Dimension) -> None:
    growth = Growth(dimension, {size: measure(dimension, size, here) for size in dimension.quick})
    assert all(cost.cpu > 0 for cost in growth.costs.values())


# Dimensions whose costs once grew with the square of the size, and sizes at which this shows.
ONCE_QUADRATIC = {
    "leases of a key: acknowledge one by one, exactly once": (500, 4_000),
    "leases of a key: nack from the last": (500, 4_000),
    "streams: deliver one message each": (250, 2_000),
    "streams during acknowledgements of a key": (250, 2_000),
    "streams that leave with ten leases": (125, 1_000),
    "topics: list in pages of 10": (1_000, 8_000),
    "topics: delete, with as many snapshots": (500, 4_000),
}


@pytest.mark.parametrize("name", ONCE_QUADRATIC)
def test_a_cost_that_was_quadratic_is_linear(name: str) -> None:
    (dimension,) = (each for each in DIMENSIONS if each.name == name)
    sizes = ONCE_QUADRATIC[name]
    cpu = [min(measure(dimension, size, here).cpu for _ in range(3)) for size in sizes]
    # 2 is quadratic.
    assert exponent(sizes, cpu) < 1.5


def test_growth_is_judged_by_its_exponent_its_memory_and_the_wait_of_other_calls() -> None:
    dimension = Dimension("broker", "things", lambda size, serve: iter(()), (1, 2, 4))
    mebibyte = 1 << 20

    def growth(cpu: float, kept: float, wait: float) -> Growth:
        costs = {size: Cost(0.1 * size**cpu, 4 * mebibyte * size**kept, wait) for size in (1, 2, 4)}
        return Growth(dimension, costs)

    assert growth(1, 1, 0.1).faults() == []
    assert growth(1, 1, 0.1).bytes_each == pytest.approx(4 * mebibyte)
    assert growth(2, 1, 0.1).faults() == ["CPU grows with exponent 2.00, allowed 1.1"]
    assert growth(1, 1.5, 0.1).faults() == ["memory grows with exponent 1.50, allowed 1.1"]
    assert growth(1, 1, 0.3).faults() == ["another call waits 0.30 s, allowed 0.2 s"]
