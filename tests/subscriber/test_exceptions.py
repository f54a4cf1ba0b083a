"""Every public error survives pickling and copying: its type, its text and its attributes."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from types import ModuleType
from typing import Any

import pytest

import pullstream
import pullstream_protocol
from pullstream.exceptions import AcknowledgeError, AcknowledgeStatus, PullTimeout
from pullstream.listen.events import ChannelFailure
from pullstream.publisher.exceptions import PublishError, PublishToPausedOrderingKeyException
from pullstream.streaming.stream import StreamEnded
from pullstream_protocol.errors import NotFound, PullstreamError, RpcError

# The arguments of the constructors that take more than a text.
SAMPLES: dict[type[BaseException], tuple[tuple[Any, ...], dict[str, Any]]] = {
    AcknowledgeError: (
        (AcknowledgeStatus.INVALID_ACK_ID, "used up"),
        {"may_have_succeeded": True},
    ),
    PullTimeout: (("nothing came",), {"answered": True}),
    ChannelFailure: (("jobs", "key", "it failed"), {}),
    PublishError: (("some failed", ["1", None], [NotFound("no topic")]), {}),
    StreamEnded: ((), {}),
    PublishToPausedOrderingKeyException: (("key", NotFound("no topic")), {}),
}


def modules() -> Iterator[ModuleType]:
    for package in (pullstream, pullstream_protocol):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                # Without an extra, such as Spark, the modules that need it are left out.
                with suppress(ImportError):
                    yield importlib.import_module(info.name)


def public_errors() -> list[type[BaseException]]:
    """Return every exception class of the packages with a public name."""
    found: dict[type[BaseException], None] = {}
    for module in modules():
        for name, value in vars(module).items():
            if (
                inspect.isclass(value)
                and issubclass(value, BaseException)
                and value.__module__.partition(".")[0] in ("pullstream", "pullstream_protocol")
                and not name.startswith("_")
            ):
                found[value] = None
    return list(found)


def sample(kind: type[BaseException]) -> BaseException:
    arguments, options = SAMPLES.get(kind, (("a text",), {}))
    if kind.__init__ is RpcError.__init__:
        options = {"reason": "REASON", "metadata": {"id": "PERMANENT_FAILURE"}}
    error = kind(*arguments, **options)
    error.note = "an attribute of the user"  # type: ignore[attr-defined]
    return error


def contents(error: BaseException) -> tuple[object, ...]:
    attributes = {name: repr(value) for name, value in vars(error).items()}
    read = [getattr(error, name, None) for name in ("code", "message", "reason", "metadata")]
    return type(error), str(error), repr(error), error.args, attributes, read


def test_the_pickling_tests_of_exceptions_cover_every_error_class() -> None:
    """The list has the errors of every part."""
    errors = public_errors()
    assert {*SAMPLES, NotFound, PullstreamError} <= set(errors)
    assert len(errors) > 30


def test_pickling_and_copying_preserve_every_pullstream_exception() -> None:
    for kind in public_errors():
        error = sample(kind)
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            assert contents(pickle.loads(pickle.dumps(error, protocol))) == contents(error)
        assert contents(copy.copy(error)) == contents(error)
        assert contents(copy.deepcopy(error)) == contents(error)


def fail() -> None:
    raise AcknowledgeError(AcknowledgeStatus.OTHER, "no answer", may_have_succeeded=True)


def test_a_pullstream_exception_in_a_pool_process_is_raised_in_the_parent_process() -> None:
    """An error that cannot be unpickled breaks the executor for all later work."""
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        with pytest.raises(AcknowledgeError, match="OTHER: no answer") as caught:
            executor.submit(fail).result()
        assert caught.value.may_have_succeeded
        assert executor.submit(len, "abc").result() == 3
