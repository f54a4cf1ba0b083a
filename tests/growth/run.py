"""`make growth`: how fast the cost of each thing grows of which users have more and more.

Each measurement has a separate process, whose CPU time counts. So other load on the machine changes
little. A dimension above a limit is measured again once; the lower costs count.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pullstream_emulator.cli import GC_THRESHOLDS
from tests.bench.run import PAGE, WIDE
from tests.bench.servers import Broker, serving
from tests.written_block import write_block

from .broker import BROKER
from .dimension import Cost, Dimension, Growth, measure
from .sdk import SDK

DIMENSIONS = (*SDK, *BROKER)
BLOCK = "growth"
HEADINGS = (
    *("process", "what grows", "sizes", "CPU, ms", "exponent"),
    *("bytes each", "exponent of memory", "longest wait, ms"),
)


@contextmanager
def apart() -> Iterator[str]:
    """Serve a broker in a separate process."""
    with serving(Broker.OURS) as endpoint:
        yield endpoint


def measured(dimension: Dimension, sizes: Sequence[int]) -> Growth:
    """Measure a dimension, each size in a separate process."""
    return Growth(dimension, {size: _cost(dimension, size) for size in sizes})


def _cost(dimension: Dimension, size: int) -> Cost:
    # A fork has all modules, so that a measurement takes no time to import them.
    forks = multiprocessing.get_context("fork")
    receiver, sender = forks.Pipe(duplex=False)
    process = forks.Process(target=_measure, args=(dimension, size, sender))
    process.start()
    sender.close()
    try:
        cost: Cost = receiver.recv()
    except EOFError:
        raise SystemExit(
            f"{dimension.side}: {dimension.name}: {size:,} failed, see above"
        ) from None
    finally:
        process.join()
    return cost


def _measure(dimension: Dimension, size: int, sender: Connection) -> None:
    # As the command `pullstream emulator` does.
    gc.collect()
    gc.freeze()
    if dimension.side == "broker":
        gc.set_threshold(*GC_THRESHOLDS)
    sender.send(measure(dimension, size, apart))


def lower(first: Growth, second: Growth) -> Growth:
    """Return the lower costs of two measurements."""
    costs = {
        size: Cost(min(one.cpu, two.cpu), min(one.kept, two.kept), min(one.wait, two.wait))
        for (size, one), two in zip(first.costs.items(), second.costs.values(), strict=True)
    }
    return Growth(first.dimension, costs)


def name_of(dimension: Dimension) -> str:
    """Return the process and the name of a dimension."""
    return f"{dimension.side}: {dimension.name}"


def read_json(path: Path) -> dict[str, dict[int, Cost]]:
    """Return the costs of a file, by dimension and size."""
    known = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: {int(size): Cost(**cost) for size, cost in costs.items()}
        for name, costs in known.items()
    }


def cells(growth: Growth) -> list[str]:
    """Return the cells of a row of the table."""
    costs, memory, each = growth.costs, growth.memory_exponent, growth.bytes_each
    return [
        growth.dimension.side,
        growth.dimension.name,
        f"{min(costs):,} to {max(costs):,}",
        f"{costs[min(costs)].cpu * 1e3:,.0f} to {costs[max(costs)].cpu * 1e3:,.0f}",
        f"{growth.cpu_exponent:.2f}",
        "" if each is None else f"{each:,.0f}",
        "" if memory is None else f"{memory:.2f}",
        f"{growth.wait * 1e3:,.0f}" if growth.wait else "",
    ]


def markdown(rows: Sequence[Growth]) -> str:
    """Return the table for the docs."""
    lines = [list(HEADINGS), ["---"] * 2 + ["---:"] * (len(HEADINGS) - 2)]
    for growth in rows:
        lines.append(cells(growth))
        if growth.faults():
            lines[-1][4] += " **missed**"
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the dimensions and return the exit status."""
    parser = argparse.ArgumentParser(prog="make growth ARGS=...", description=__doc__)
    parser.add_argument("--only", default="", help="the dimensions whose row contains this")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is exceeded")
    parser.add_argument("--json", type=Path, help="a file that gets the costs and has earlier ones")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/")
    chosen = parser.parse_args(arguments)
    if chosen.write_docs and chosen.only and not chosen.json:
        parser.error("--write-docs needs all dimensions, or those of --json")
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    known = read_json(chosen.json) if chosen.json and chosen.json.exists() else {}
    for dimension in DIMENSIONS:
        if chosen.only not in name_of(dimension):
            continue
        sizes = dimension.quick if chosen.quick else dimension.sizes
        growth = measured(dimension, sizes)
        if growth.faults() and not chosen.quick:
            growth = lower(growth, measured(dimension, sizes))
        known[name_of(dimension)] = growth.costs
        console.print(" | ".join(cells(growth)), highlight=False)
        if chosen.json:
            chosen.json.write_text(json.dumps(known, default=asdict, indent=1), encoding="utf-8")
    rows = [Growth(each, known[name_of(each)]) for each in DIMENSIONS if name_of(each) in known]
    faults = [f"{name_of(row.dimension)}: {fault}" for row in rows for fault in row.faults()]
    view = Table(*HEADINGS)
    for growth in rows:
        view.add_row(*cells(growth))
    console.print(view)
    if chosen.write_docs:
        write_block(PAGE, BLOCK, markdown(rows))
    for fault in faults:
        console.print(fault)
    return 1 if chosen.check and faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
