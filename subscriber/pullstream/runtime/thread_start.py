"""Thread starts that the system may refuse.

The system refuses threads to a process that has too many of them. Python 3.12 and later refuse
them once the interpreter has begun to shut down, which is before it waits for its executors.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context

from pullstream_protocol.due_thread import DueThread


def threads_are_refused() -> bool:
    """Return whether no thread can be started, by trying, once the main thread has ended."""
    if threading.main_thread().is_alive():
        return False
    attempt = threading.Thread(target=lambda: None, daemon=True)
    try:
        attempt.start()
    except RuntimeError:
        return True
    # Wait for its end, because the interpreter may be finalized at any moment.
    attempt.join()
    return False


def start_or_undo(thread: threading.Thread | DueThread, undo: Callable[[], object]) -> None:
    """Start a thread. If this fails, call `undo` and raise the RuntimeError."""
    try:
        thread.start()
    except RuntimeError:
        undo()
        raise


async def run_on_new_thread(function: Callable[[], None], name: str) -> None:
    """Run a blocking function on a new thread, in a copy of the caller's context.

    Unlike `asyncio.to_thread`, it works if all threads of the loop's pool are occupied.

    Args:
        function: The function. Its error is raised here.
        name: Name of the thread.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)
        finally:
            loop.call_soon_threadsafe(ended.set)

    context = copy_context()
    threading.Thread(target=context.run, args=(run,), name=name, daemon=True).start()
    await ended.wait()
    if errors:
        raise errors[0]
