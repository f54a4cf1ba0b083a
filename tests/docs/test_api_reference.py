"""docs/api.md lists every public name, with the first line of its docstring."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest

if tuple(sys.version_info) < (3, 11):
    pytest.skip("pullstream.spark needs Python 3.11", allow_module_level=True)

import pullstream
import pullstream.spark
import pullstream_emulator
from pullstream import PublisherClient, SchemaServiceClient, SubscriberClient, TopicAdminClient
from pullstream.logs.feeds.client import FeedsClient
from pullstream.logs.feeds.routers import CursorsClient, RoutersClient
from pullstream.telemetry.opentelemetry import OpenTelemetryHooks
from pullstream.telemetry.prometheus import PrometheusHooks, PrometheusPublisherHooks
from pullstream_emulator import Emulator

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", PAGE, re.MULTILINE)


def documented_members(owner: object) -> dict[str, object]:
    """Return the public members of a class or an object that have a docstring."""
    members = {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_")}
    return {name: member for name, member in members.items() if inspect.getdoc(member)}


def public_names() -> dict[str, list[object]]:
    """Return every public name as the page writes it, with the objects of that name."""
    found: dict[str, list[object]] = {}
    for owner, prefix in [
        (pullstream, ""),
        (pullstream.spark, "pullstream.spark."),
        (pullstream_emulator, "pullstream_emulator."),
    ]:
        for name in owner.__all__:
            found[prefix + name] = [getattr(owner, name)]
    for hooks in (PrometheusHooks, PrometheusPublisherHooks, OpenTelemetryHooks):
        found[f"{hooks.__module__}.{hooks.__name__}"] = [hooks]
    owners = (
        SubscriberClient,
        PublisherClient,
        TopicAdminClient,
        SchemaServiceClient,
        Emulator,
        # Classes, because a client would start gRPC's threads in every process that collects
        # tests. A child process then crashes now and then, before it begins its program.
        FeedsClient,
        CursorsClient,
        RoutersClient,
    )
    for members in owners:
        for name, member in documented_members(members).items():
            found.setdefault(name, []).append(member)
    return found


NAMES = public_names()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_of_pullstream_is_in_the_api_reference_page(name: str) -> None:
    """The page has each name with its description."""
    first_lines = {(inspect.getdoc(one) or "").splitlines()[0] for one in NAMES[name]}
    assert first_lines & {text for listed, text in ROWS if listed == name}


@pytest.mark.parametrize(("name", "text"), ROWS)
def test_every_name_in_the_api_reference_page_exists_in_pullstream(name: str, text: str) -> None:
    """The page names nothing that was renamed or removed, and quotes the docstring."""
    assert text in {(inspect.getdoc(one) or "").splitlines()[0] for one in NAMES[name]}
