"""The names that users import, and the cost of the imports."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.completed import run_command
from tests.emulator.loop_steps import on_this_machine

ROOT = Path(__file__).resolve().parent.parent

PUBLIC_NAMES = {
    "pullstream": {
        "AckFuture",
        "AcknowledgeError",
        "AcknowledgeStatus",
        "AsyncFetchedColumns",
        "AsyncFetchedMessages",
        "AsyncPublisherClient",
        "AsyncSubscriberClient",
        "BatchSettings",
        "ChannelFailure",
        "ChannelLimits",
        "ChannelMessage",
        "ChannelPublisher",
        "ChannelSubscriber",
        "CheckpointFile",
        "CoroutineScheduler",
        "Dedupe",
        "Dropped",
        "FetchedColumns",
        "FetchedMessages",
        "FlowControl",
        "FlowControlLimitError",
        "Follower",
        "ForkedProcess",
        "FrameStream",
        "Hooks",
        "Latency",
        "LimitExceededBehavior",
        "Message",
        "MessageBatch",
        "MessageColumns",
        "MessageStream",
        "MessageTooLargeError",
        "PublishError",
        "PublishFlowControl",
        "PublishFuture",
        "PublishHedging",
        "PublishManyFuture",
        "PublishToPausedOrderingKeyException",
        "PublisherClient",
        "PublisherClosed",
        "PublisherHooks",
        "PublisherOptions",
        "PublisherStatistics",
        "PullTimeout",
        "Reading",
        "Reset",
        "Scheduler",
        "SchemaServiceClient",
        "ServerCursor",
        "StateChange",
        "Statistics",
        "StreamStatistics",
        "StreamingPullFuture",
        "SubscriberClient",
        "SubscriberClosed",
        "SubscriptionState",
        "ThreadScheduler",
        "TopicAdminClient",
        "WatchFuture",
    },
    "pullstream_emulator": {"Emulator"},
}
# Modules that are not meant to be imported with *, so they need no __all__.
NAMES_IN_MODULES = {
    "pullstream.futures": {"Future", "StreamingPullFuture"},
    "pullstream.publisher.client": {"Client"},
    "pullstream.publisher.exceptions": {"PublishError", "TimeoutError"},
    "pullstream.publisher.futures": {"Future"},
    "pullstream.subscriber": {"Client", "client", "exceptions", "futures", "message", "types"},
    "pullstream.subscriber.client": {"Client"},
    "pullstream.subscriber.exceptions": {"AcknowledgeError", "TimeoutError"},
    "pullstream_protocol.clock": {"Clock", "ManualClock", "SystemClock"},
}

# Modules that a subscribing program does not need, or that are slow to import.
UNWANTED = [
    *("aiohttp", "click", "pullstream_emulator", "google.auth", "http.server"),
    *("opentelemetry", "prometheus_client", "pyarrow", "pyspark", "rich"),
]
# Processor time: twice the real cost, and below the cost of a heavy import.
IMPORT_SECONDS = 1.0

MEASURE_IMPORT = """
import json, sys, time
start = time.process_time()
import pullstream
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


@pytest.mark.parametrize("package", PUBLIC_NAMES)
def test_each_package_exports_exactly_its_documented_public_names(package: str) -> None:
    """Each public name is in the table above and in __all__."""
    module = importlib.import_module(package)
    assert set(module.__all__) == PUBLIC_NAMES[package]
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("name", NAMES_IN_MODULES)
def test_each_public_module_has_its_documented_names(name: str) -> None:
    """The names are imported from the module itself."""
    assert NAMES_IN_MODULES[name] <= vars(importlib.import_module(name)).keys()


def test_the_error_for_a_name_that_only_googles_package_has_points_to_that_package() -> None:
    """A program whose imports are exchanged gets this error first."""
    subscriber: Any = importlib.import_module("pullstream")
    with pytest.raises(AttributeError, match=r"PublisherAsyncClient.*google\.cloud\.pubsub_v1"):
        _ = subscriber.PublisherAsyncClient
    with pytest.raises(AttributeError, match=r"has no attribute 'Nothing'$"):
        _ = subscriber.Nothing


def test_importing_the_sdk_is_fast_and_loads_no_unneeded_modules() -> None:
    """The import is fast and loads no module that a subscribing program may never need."""
    command = [sys.executable, "-c", MEASURE_IMPORT]
    # The least of three, because other processes take the caches of the processor.
    measured = [json.loads(run_command(command, cwd=ROOT, check=True).stdout) for _ in range(3)]
    assert set(UNWANTED) & set(measured[0]["modules"]) == set()
    assert min(each["seconds"] for each in measured) < on_this_machine(IMPORT_SECONDS)
