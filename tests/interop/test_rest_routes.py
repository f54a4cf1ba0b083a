"""The broker's routes are the routes that the official client calls over HTTP."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from google.pubsub_v1.services.publisher.transports.rest_base import _BasePublisherRestTransport
from google.pubsub_v1.services.schema_service.transports.rest_base import (
    _BaseSchemaServiceRestTransport,
)
from google.pubsub_v1.services.subscriber.transports.rest_base import _BaseSubscriberRestTransport

from pullstream_emulator.rest.routes import ROUTES

TRANSPORTS: tuple[Any, ...] = (
    _BasePublisherRestTransport,
    _BaseSubscriberRestTransport,
    _BaseSchemaServiceRestTransport,
)


def options(transport: Any) -> Iterator[tuple[str, str, str, str]]:
    """Yield method, verb, template and body of each call of a transport."""
    for name, call in vars(transport).items():
        if inspect.isclass(call) and name != "_BaseStreamingPull":
            for option in getattr(call, "_get_http_options", list)():
                method = name.removeprefix("_Base")
                yield method, option["method"], option["uri"], option.get("body", "")


def test_the_rest_routes_of_the_broker_are_exactly_those_of_google_pubsub() -> None:
    """A route has a verb, a path, and the field in the body."""
    ours = {(r.method, r.verb.lower(), f"/v1/{r.template}", r.body) for r in ROUTES}
    assert ours == {option for transport in TRANSPORTS for option in options(transport)}
