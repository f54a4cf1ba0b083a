"""UnaryClient and AsyncUnaryClient: the bases of classes whose methods are unary calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from pullstream.runtime.validation import require_number
from pullstream_protocol.rpcs import BY_METHOD

from .async_calls import call_async
from .paging import AsyncPager, Pager
from .request import build_request
from .rpcs import DEFAULT_RETRY, CallOptions, Rpcs

M = TypeVar("M", bound=Message)


class UnaryClient:
    """Builds requests and makes unary calls. Thread-safe.

    Args:
        rpcs: Makes the calls. The client that owns the connection closes it.
    """

    def __init__(self, rpcs: Rpcs) -> None:
        self._rpcs = rpcs

    def _call(
        self,
        method: str,
        response: type[M],
        request: Message | Mapping[str, Any] | None,
        options: CallOptions,
        **fields: Any,
    ) -> M:
        """Make the call `method`. The type checker knows the result's type from `response`."""
        message = request_of(method, request, fields, options)
        result: M = self._rpcs.call(method, message, **options)
        return result

    def _list(
        self,
        method: str,
        items: str,
        request: Message | Mapping[str, Any] | None,
        options: CallOptions,
        **fields: Any,
    ) -> Pager[Any]:
        """Make the list call `method`. `items` is the response's field that holds the list."""
        first: Any = request_of(method, request, fields, options)
        return Pager(
            lambda token: self._rpcs.call(method, _page_request(first, token), **options), items
        )


class AsyncUnaryClient:
    """Builds requests and makes unary calls on the running event loop.

    Args:
        rpcs: Makes the calls. The client that owns the connection closes it.
    """

    def __init__(self, rpcs: Rpcs) -> None:
        self._rpcs = rpcs

    async def _call(self, method: str, response: type[M], options: CallOptions, **fields: Any) -> M:
        """Make the call `method`. The type checker knows the result's type from `response`."""
        message = request_of(method, None, fields, options)
        result: M = await call_async(self._rpcs, method, message, **options)
        return result

    def _list(
        self, method: str, items: str, options: CallOptions, **fields: Any
    ) -> AsyncPager[Any]:
        """Return the result of the list call `method`, which the iteration makes."""
        first: Any = request_of(method, None, fields, options)
        return AsyncPager(
            lambda token: call_async(self._rpcs, method, _page_request(first, token), **options),
            items,
        )


def rpcs_of(client: UnaryClient) -> Rpcs:
    """Return the calls on the client's channel, for another object that makes calls on it."""
    return client._rpcs


def _page_request(first: Any, token: str) -> Any:
    """Return a copy of the request `first` for the page of `token`."""
    page = type(first)()
    page.CopyFrom(first)
    # The caller's request may begin at a later page.
    page.page_token = token or first.page_token
    return page


def request_of(
    method: str,
    request: Message | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
    options: CallOptions,
) -> Any:
    """Return the request of a call with these keywords, and leave the call's options in `options`.

    Args:
        method: Name of the RPC.
        request: The user's request, or None.
        fields: The user's keywords for the fields that the method's signature has.
        options: The user's other keywords. Those of further fields of the request are removed.

    Raises:
        TypeError: A keyword does not exist, or an option has the wrong type. The methods accept any
            keyword, and `Rpcs.call` would name itself in its error.
        ValueError, TypeError: See `build_request`.
    """
    message_type = BY_METHOD[method].request
    given = cast("dict[str, Any]", options)
    further = message_type.DESCRIPTOR.fields_by_name.keys() - CallOptions.__annotations__.keys()
    fields = {**fields, **{name: given.pop(name) for name in [*given] if name in further}}
    known = CallOptions.__annotations__
    unknown = ", ".join(sorted(given.keys() - known.keys()))
    if unknown:
        allowed = ", ".join(("request", *sorted(further), *known))
        raise TypeError(f"{method} has no keyword {unknown}; it has {allowed}")
    _check_options(options)
    return build_request(message_type, request, fields)


def _check_options(options: CallOptions) -> None:
    timeout = options.get("timeout")
    if timeout is not None:
        require_number("timeout", timeout)
    retry = options.get("retry")
    if not (retry is None or retry is DEFAULT_RETRY or callable(retry)):
        raise TypeError(
            f"retry is {retry!r:.80}; it must be a google.api_core.retry.Retry, None for a single "
            "attempt, or left out"
        )
    metadata: Any = options.get("metadata", ())
    if not isinstance(metadata, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in metadata
    ):
        raise TypeError(f"metadata is {metadata!r:.80}; it must be a list of (key, value) pairs")
