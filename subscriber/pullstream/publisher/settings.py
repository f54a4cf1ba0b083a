"""Settings of a publisher, with the official client's names and defaults."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

from google.api_core import exceptions as api

from pullstream.runtime.repeated_errors import RepeatedErrors
from pullstream.runtime.validation import (
    require_int,
    require_number,
    require_positive,
    require_timeout,
)
from pullstream_protocol.message_limits import MAX_REQUEST_BYTES, MAX_REQUEST_MESSAGES


class BatchSettings(NamedTuple):
    """When a batch of messages is sent: at the first of these limits.

    A batch is also sent when a caller waits for one of its messages and no other request to the
    topic, or with the ordering key, is in flight.

    Attributes:
        max_bytes: Size of the request in bytes, up to 10,000,000. Default: 1,000,000.
        max_latency: Seconds since the first message of the batch. Default: 0.01. `math.inf`: no
            limit.
        max_messages: Number of messages, up to 1,000. Default: 100.
    """

    max_bytes: int = 1_000_000
    max_latency: float = 0.01
    max_messages: int = 100


class LimitExceededBehavior(str, Enum):
    """What `publish` does when the limits of PublishFlowControl are reached."""

    IGNORE = "ignore"
    BLOCK = "block"
    ERROR = "error"


class PublishFlowControl(NamedTuple):
    """Limits on the messages that the server has not confirmed yet.

    Attributes:
        message_limit: Number of messages. Default: 1,000.
        byte_limit: Bytes of messages. Default: 10,000,000.
        limit_exceeded_behavior: IGNORE (default): no limit. BLOCK: `publish` waits for room. ERROR:
            the future of the message fails with FlowControlLimitError.
    """

    message_limit: int = 1_000
    byte_limit: int = 10_000_000
    limit_exceeded_behavior: LimitExceededBehavior = LimitExceededBehavior.IGNORE


class PublishHedging(NamedTuple):
    """Second requests for slow ones, as in Google's clients for Go, Java and Rust.

    When a request without an ordering key has no answer after `delay`, the same request is sent
    again, and again after each further `delay`. The first success counts. A server that has no
    idempotency keys, such as Google's, may then store the messages twice.

    Attributes:
        delay: Seconds, 0.1 to 10. Default: 1.
        max_tokens: The most hedged requests in a row, 1 to 250. Default: 50.
        refill_ratio: Hedged requests that each successful request adds to the budget, 0.001 to 0.2.
            Default: 0.1, so at most 10 % more requests in the long term.
    """

    delay: float = 1.0
    max_tokens: int = 50
    refill_ratio: float = 0.1


class PublishDefault(Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "the value in PublisherOptions, or the built-in value"


DEFAULT: Final = PublishDefault.DEFAULT

# Seconds for one attempt.
DEFAULT_ATTEMPT_TIMEOUT = 60.0


class PublisherOptions(NamedTuple):
    """Options of a publisher.

    Attributes:
        enable_message_ordering: Whether messages may have ordering keys. Default: False.
        flow_control: Limits on unconfirmed messages. Default: none.
        retry: A `google.api_core.retry.Retry`, or None for a single attempt. Default: transient
            errors are retried for 600 seconds.
        timeout: Seconds for each attempt, or a timeout object of google-api-core. None: no limit.
            Default: 60.
        enable_open_telemetry_tracing: Whether to create a span for each message, and to send its
            context in the attribute `googclient_traceparent`. Default: False.
        hedging: Second requests for slow ones. Default: None.
        enable_compression: Whether to compress requests with gzip. Default: False.
        compression_bytes_threshold: The smallest request to compress, in bytes. Default: 240.
    """

    enable_message_ordering: bool = False
    flow_control: PublishFlowControl = PublishFlowControl()
    retry: Any = DEFAULT
    timeout: Any = DEFAULT_ATTEMPT_TIMEOUT
    enable_open_telemetry_tracing: bool = False
    hedging: PublishHedging | None = None
    enable_compression: bool = False
    compression_bytes_threshold: int = 240


_errors = RepeatedErrors(logging.getLogger("pullstream.publisher"))

S = TypeVar("S", BatchSettings, PublisherOptions, PublishFlowControl, PublishHedging)

_TRANSIENT = (
    api.Aborted,
    api.Cancelled,
    api.DeadlineExceeded,
    api.InternalServerError,
    api.ResourceExhausted,
    api.ServiceUnavailable,
    api.Unknown,
)


def is_transient(error: BaseException) -> bool:
    """Return whether a retry of the same request may succeed, as in the official client."""
    return isinstance(error, _TRANSIENT)


def _never(error: BaseException) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """How long a request is attempted.

    Attributes:
        attempt_timeout: Seconds for each attempt. None: no limit.
        is_retried: Returns whether to retry after an error.
        first_pause: The first pause between attempts, in seconds.
        longest_pause: The longest pause, in seconds.
        factor: Growth of the pauses.
        give_up_after: Seconds since the first failure. None: no limit.
    """

    attempt_timeout: float | None = DEFAULT_ATTEMPT_TIMEOUT
    is_retried: Callable[[BaseException], bool] = is_transient
    first_pause: float = 0.1
    longest_pause: float = 60.0
    factor: float = 4.0
    give_up_after: float | None = 600.0


def policy_of(retry: Any, timeout: Any, default: PublishPolicy) -> PublishPolicy:
    """Return the policy for a user's `retry` and `timeout`.

    Args:
        retry: DEFAULT, None, or a `google.api_core.retry.Retry`.
        timeout: DEFAULT, None, seconds, or a timeout object of google-api-core.
        default: The policy whose values replace DEFAULT.

    Raises:
        TypeError, ValueError: An argument has another type, or a number is out of range.
    """
    attempt_timeout = default.attempt_timeout if _is_default(timeout) else _seconds_of(timeout)
    if _is_default(retry):
        return replace(default, attempt_timeout=attempt_timeout)
    if retry is None:
        return PublishPolicy(attempt_timeout, _never)
    try:
        # google-api-core has no public names for these settings.
        return PublishPolicy(
            attempt_timeout,
            _shielded(retry._predicate),
            retry._initial,
            retry._maximum,
            retry._multiplier,
            retry._timeout,
        )
    except AttributeError:
        raise TypeError(
            f"retry is {retry!r}; it must be a google.api_core.retry.Retry, None for a single "
            "attempt, or left out"
        ) from None


def _shielded(predicate: Callable[[BaseException], bool]) -> Callable[[BaseException], bool]:
    """Return a user's predicate for the threads of a publisher. If it raises, nothing is retried.

    The message would otherwise have no result.
    """

    def is_retried(error: BaseException) -> bool:
        try:
            return predicate(error)
        except BaseException as raised:
            text = f"the predicate {predicate!r} of a retry raised, so the request is not retried"
            _errors.report(raised, text)
            return False

    return is_retried


def _is_default(value: object) -> bool:
    # The second one is google.api_core.gapic_v1.method.DEFAULT, without an import of its module.
    return value is DEFAULT or type(value).__name__ == "_MethodDefault"


def _seconds_of(timeout: Any) -> float | None:
    # A ConstantTimeout or TimeToDeadlineTimeout keeps its seconds in this attribute.
    return require_timeout("timeout", getattr(timeout, "_timeout", timeout))


def checked_batch_settings(settings: BatchSettings | tuple[Any, ...]) -> BatchSettings:
    """Return settings within the server's limits of a request.

    Raises:
        TypeError, ValueError: A value has the wrong type or is not positive.
    """
    settings = _as_tuple(BatchSettings, "batch_settings", settings)
    require_positive("batch_settings.max_bytes", settings.max_bytes)
    require_positive("batch_settings.max_messages", settings.max_messages)
    if require_number("batch_settings.max_latency", settings.max_latency) < 0:
        raise ValueError(
            f"batch_settings.max_latency is {settings.max_latency}; it must not be negative"
        )
    return BatchSettings(
        min(settings.max_bytes, MAX_REQUEST_BYTES),
        settings.max_latency,
        min(settings.max_messages, MAX_REQUEST_MESSAGES),
    )


def checked_options(options: PublisherOptions | tuple[Any, ...]) -> PublisherOptions:
    """Return the options if they are valid.

    Raises:
        TypeError, ValueError: A value has the wrong type or is out of range.
    """
    options = _as_tuple(PublisherOptions, "publisher_options", options)
    flow_control = _as_tuple(PublishFlowControl, "flow_control", options.flow_control)
    require_positive("flow_control.message_limit", flow_control.message_limit)
    require_positive("flow_control.byte_limit", flow_control.byte_limit)
    behavior = flow_control.limit_exceeded_behavior
    try:
        behavior = LimitExceededBehavior(behavior)
    except ValueError:
        raise ValueError(
            f"flow_control.limit_exceeded_behavior is {behavior!r}; it must be one of "
            f"{', '.join(f'LimitExceededBehavior.{one.name}' for one in LimitExceededBehavior)}"
        ) from None
    if options.hedging is not None:
        hedging = _as_tuple(PublishHedging, "hedging", options.hedging)
        _require_between("hedging.delay", hedging.delay, 0.1, 10)
        _require_between("hedging.max_tokens", hedging.max_tokens, 1, 250)
        _require_between("hedging.refill_ratio", hedging.refill_ratio, 0.001, 0.2)
    if require_int("compression_bytes_threshold", options.compression_bytes_threshold) < 0:
        raise ValueError(
            f"compression_bytes_threshold is {options.compression_bytes_threshold}; it must not be "
            "negative"
        )
    return options._replace(flow_control=flow_control._replace(limit_exceeded_behavior=behavior))


def _as_tuple(kind: type[S], name: str, values: tuple[Any, ...]) -> S:
    """Return settings from a tuple of the first ones, as the official client accepts them."""
    if not isinstance(values, (tuple, list)) or len(values) > len(kind._fields):
        raise TypeError(f"{name} is {values!r:.80}; it must be a {kind.__name__}")
    return kind(*values)


def _require_between(name: str, value: float, least: float, most: float) -> None:
    if not least <= require_number(name, value) <= most:
        raise ValueError(f"{name} is {value}; it must be between {least} and {most}")
