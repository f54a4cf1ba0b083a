"""Settings of the whole suite, and how it runs coroutine functions."""

import asyncio
import inspect
import os
import signal
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
from hypothesis import HealthCheck, settings

# A shell starts background jobs with Ctrl-C ignored, and the programs that tests start and then
# interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For the programs that tests start: google-api-core warns on stderr about a Python near its end of
# life, and stderr must stay empty.
os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")

# The duration of one example depends on the machine, which others use as well.
settings.register_profile("pullstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pullstream")

# The limit of a test that is a coroutine function.
TIMEOUT = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function on an event loop of its own.

    A fixture that is an asynchronous context manager is open on this loop during the test.
    """
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None

    async def run() -> None:
        async with AsyncExitStack() as stack:
            arguments = {}
            for name in inspect.signature(test).parameters:
                value = pyfuncitem.funcargs[name]
                if isinstance(value, AbstractAsyncContextManager):
                    value = await stack.enter_async_context(value)
                arguments[name] = value
            await asyncio.wait_for(test(**arguments), TIMEOUT)

    asyncio.run(run())
    return True
