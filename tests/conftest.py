"""Settings of the whole suite, and how it runs coroutine functions."""

import asyncio
import gc
import inspect
import os
import signal
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
from hypothesis import HealthCheck, settings

from tests.quick_java import QUICK_JAVA, quick_java

# A shell starts background jobs with Ctrl-C ignored, and the programs that tests start and then
# interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For the programs that tests start: google-api-core warns on stderr about a Python near its end of
# life, and stderr must stay empty.
os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")

# Spark prints no line about these variables, as Java would about its own.
os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_java())
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)

# The duration of one example depends on the machine, which others use as well.
settings.register_profile("pullstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pullstream")

# The limit of a test that is a coroutine function.
TIMEOUT = 60.0


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let garbage collections skip the tests themselves, which are half a million objects."""
    gc.collect()
    gc.freeze()


# Outermost, so after pytest itself.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Give a folder that is collected again the fixtures of its conftest.

    pytest 9.1 binds them to the first node of the folder, and makes another one if the arguments
    name files of the folder, then other files, then files of the folder again.
    """
    report = yield
    if isinstance(collector, pytest.Directory) and pytest.version_tuple[:2] == (9, 1):
        conftest = collector.config.pluginmanager.get_plugin(str(collector.path / "conftest.py"))
        manager = collector.session._fixturemanager
        known = (one for some in manager._arg2fixturedefs.values() for one in some)
        if conftest is not None and all(one.node is not collector for one in known):
            manager.parsefactories(holder=conftest, node=collector)
    return report


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
