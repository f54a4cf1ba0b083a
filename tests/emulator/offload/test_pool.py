"""The pool of worker processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pullstream_emulator.offload import ProcessPool, pool
from pullstream_protocol.errors import FailedPrecondition, ResourceExhausted, Unavailable
from tests.emulator import jobs

R = TypeVar("R")

PATIENCE = 20.0
STOPPING = Unavailable("The broker is shutting down.")


def with_pool(
    use: Callable[[ProcessPool], Awaitable[R]],
    *,
    processes: int = 2,
    max_bytes: int = pool.MAX_BYTES,
    max_seconds: float = pool.MAX_SECONDS,
) -> R:
    async def on_loop() -> R:
        processes_ = ProcessPool(processes, max_bytes=max_bytes, max_seconds=max_seconds)
        try:
            return await asyncio.wait_for(use(processes_), PATIENCE)
        finally:
            await processes_.close(STOPPING)
            assert processes_.pids == []

    return asyncio.run(on_loop())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_is_started_when_it_is_needed_and_kept_for_the_next_job() -> None:
    async def use(processes: ProcessPool) -> tuple[list[int], int, int]:
        before = processes.pids
        return before, await processes.run(0, os.getpid), await processes.run(0, os.getpid)

    before, first, second = with_pool(use)
    assert before == []
    assert first == second != os.getpid()


def test_a_process_without_work_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.01)

    async def use(processes: ProcessPool) -> int:
        pid = await processes.run(0, os.getpid)
        await until(lambda: not processes.pids)
        assert await processes.run(0, os.getpid) != pid
        return pid

    assert not is_running(with_pool(use))


def test_large_arguments_and_results() -> None:
    data = bytes(range(256)) * 40_000

    async def use(processes: ProcessPool) -> bytes:
        return await processes.run(len(data), bytes.swapcase, data)

    assert with_pool(use) == data.swapcase()


def test_what_a_job_raises_is_raised() -> None:
    async def use(processes: ProcessPool) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            await processes.run(0, int, "one")
        with pytest.raises(RuntimeError, match="orders: 1"):
            await processes.run(0, jobs.raise_unpicklable)
        assert await processes.run(0, int, "1") == 1

    with_pool(use)


@pytest.mark.parametrize("job", [jobs.interrupt, jobs.print_something])
def test_neither_ctrl_c_nor_what_is_printed_disturbs_a_process(job: Callable[[], str]) -> None:
    async def use(processes: ProcessPool) -> str:
        return await processes.run(0, job)

    assert with_pool(use) == "done"


def test_a_job_whose_process_ends_is_tried_in_another_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(processes: ProcessPool) -> str:
        return await processes.run(0, jobs.end_the_first_process, tmp_path / "marker")

    assert with_pool(use) == "done"
    assert "a worker process ended (exit code 3) before it answered" in caplog.text


def test_a_process_that_ended_without_work_costs_no_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def use(processes: ProcessPool) -> None:
        pid = await processes.run(0, os.getpid)
        os.kill(pid, 9)
        await until(lambda: not processes.pids)
        assert await processes.run(0, os.getpid) != pid

    with_pool(use)
    assert caplog.text == ""


def test_a_job_that_ends_every_process_is_unavailable() -> None:
    async def use(processes: ProcessPool) -> None:
        with pytest.raises(Unavailable, match="ended 2 times") as refused:
            await processes.run(0, jobs.end_process, 3)
        assert refused.value.reason == "PROCESS_ENDED"
        assert await processes.run(0, int, "1") == 1

    with_pool(use)


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")

    async def use(processes: ProcessPool) -> None:
        with pytest.raises(Unavailable, match="no process can be started") as refused:
            await processes.run(0, int, "1")
        assert refused.value.reason == "NO_PROCESS"

    with_pool(use)


def test_a_job_that_takes_too_long_ends_with_its_process(tmp_path: Path) -> None:
    async def use(processes: ProcessPool) -> None:
        with pytest.raises(FailedPrecondition, match=r"more than 0\.5 s"):
            await processes.run(0, jobs.work_on, tmp_path / "marker")
        await until(lambda: not processes.pids)

    with_pool(use, max_seconds=0.5)


def test_a_cancelled_job_ends_its_process_and_makes_room(tmp_path: Path) -> None:
    async def use(processes: ProcessPool) -> int:
        marker = tmp_path / "marker"
        job = asyncio.create_task(processes.run(0, jobs.work_on, marker))
        await until(marker.exists)
        waiting = asyncio.create_task(processes.run(0, int, "1"))
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        return await waiting

    assert with_pool(use, processes=1) == 1


def test_more_jobs_than_processes_wait_and_more_bytes_than_allowed_are_refused(
    tmp_path: Path,
) -> None:
    async def use(processes: ProcessPool) -> None:
        marker = tmp_path / "marker"
        running = asyncio.create_task(processes.run(60, jobs.work_on, marker))
        await until(marker.exists)
        waiting = asyncio.create_task(processes.run(40, int, "1"))
        await asyncio.sleep(0)
        with pytest.raises(ResourceExhausted, match="Requests of 100 bytes wait"):
            await processes.run(1, int, "1")
        assert len(processes.pids) == 1
        running.cancel()
        assert await waiting == 1
        # One job may have more than all together.
        assert await processes.run(1000, int, "1") == 1

    with_pool(use, processes=1, max_bytes=100)


def test_closing_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    async def use(processes: ProcessPool) -> None:
        marker = tmp_path / "marker"
        running = asyncio.create_task(processes.run(0, jobs.work_on, marker))
        await until(marker.exists)
        (pid,) = processes.pids
        waiting = asyncio.create_task(processes.run(0, int, "1"))
        await asyncio.sleep(0)
        await processes.close(STOPPING)
        assert not is_running(pid)
        for job in (running, waiting):
            with pytest.raises(Unavailable):
                await job
        with pytest.raises(Unavailable):
            await processes.run(0, int, "1")
        processes.open()
        assert await processes.run(0, int, "1") == 1

    with_pool(use, processes=1)


def test_closing_while_a_process_is_started() -> None:
    async def use(processes: ProcessPool) -> None:
        running = asyncio.create_task(processes.run(0, int, "1"))
        await asyncio.sleep(0)
        await processes.close(STOPPING)
        with pytest.raises(Unavailable):
            await running

    with_pool(use)
