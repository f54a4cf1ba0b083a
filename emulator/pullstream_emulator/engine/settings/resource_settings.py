"""Defaults, limits and error texts for the settings of topics and subscriptions.

Values and texts are the same as in the real service, as far as they are known
(https://cloud.google.com/pubsub/quotas and recorded replies).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from google.protobuf.duration_pb2 import Duration

from pullstream_emulator.error_texts import invalid_argument, too_large, too_small
from pullstream_protocol.errors import InvalidArgument
from pullstream_protocol.filter import compile_filter
from pullstream_protocol.messages import pubsub_pb2 as pubsub

from .durations import DAY, MINUTE, in_digits, in_words, seconds_of
from .stored_settings import check_transforms, finish_exports, finish_ingestion

MIN_ACK_DEADLINE = 10
MAX_ACK_DEADLINE = 600
DEFAULT_ACK_DEADLINE = 10
MIN_RETENTION = 10 * MINUTE
MAX_RETENTION = 31 * DAY
DEFAULT_RETENTION = 7 * DAY
DEFAULT_TTL = 31 * DAY
MIN_TTL = DAY
MAX_BACKOFF = 10 * MINUTE
DEFAULT_MIN_BACKOFF = 10
MIN_DELIVERY_ATTEMPTS = 5
MAX_DELIVERY_ATTEMPTS = 100
MAX_FILTER_BYTES = 256
MAX_LABELS = 64

_PUSH_HELP = "Refer to https://cloud.google.com/pubsub/subscriber#create for more information."
_PUSH_VERSION_KEY = "x-goog-version"
_PUSH_VERSIONS = frozenset({"v1", "v1beta1", "v1beta2"})

_LABEL_KEY = re.compile(r"[^\W\d_A-Z][\w\-]{0,62}")
_LABEL_VALUE = re.compile(r"[\w\-]{0,63}")


def finish_topic(topic: pubsub.Topic) -> None:
    """Check a topic before it is stored, and fill in the fields that the service sets."""
    check_labels(topic.labels)
    if topic.HasField("message_retention_duration"):
        _check_retention(topic.message_retention_duration)
    check_transforms(topic.message_transforms)
    finish_ingestion(topic)


def finish_subscription(
    subscription: pubsub.Subscription, min_ack_deadline: int = MIN_ACK_DEADLINE
) -> None:
    """Check a subscription before it is stored, and fill in the defaults."""
    if subscription.ack_deadline_seconds == 0:
        subscription.ack_deadline_seconds = DEFAULT_ACK_DEADLINE
    check_ack_deadline(subscription.ack_deadline_seconds, min_ack_deadline)
    check_labels(subscription.labels)
    _finish_retention(subscription)
    _finish_dead_letter_policy(subscription)
    _finish_retry_policy(subscription)
    if len(subscription.filter.encode()) > MAX_FILTER_BYTES:
        raise too_large("filter", len(subscription.filter.encode()), MAX_FILTER_BYTES)
    compile_filter(subscription.filter)
    if not subscription.HasField("push_config"):
        subscription.push_config.SetInParent()
    subscription.state = pubsub.Subscription.ACTIVE
    _check_push_config(subscription.push_config)
    finish_exports(subscription)
    check_transforms(subscription.message_transforms)


def check_ack_deadline(seconds: int, minimum: int) -> None:
    """Refuse a deadline outside `minimum`..600 s. If `minimum` is 0, a deadline of 0 is a nack."""
    if not minimum <= seconds <= MAX_ACK_DEADLINE:
        raise InvalidArgument(
            f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be "
            f"between {minimum} and {MAX_ACK_DEADLINE} seconds."
        )


def _out_of_bounds(name: str, value: float, low: float, high: float) -> InvalidArgument:
    return InvalidArgument(
        f"The value for {name} is out of bounds. You passed {in_words(value)} in the request, but "
        f"the value must be between {in_words(low)} and {in_words(high)}."
    )


def _check_retention(duration: Duration) -> None:
    seconds = seconds_of(duration)
    if not MIN_RETENTION <= seconds <= MAX_RETENTION:
        raise _out_of_bounds("message retention duration", seconds, MIN_RETENTION, MAX_RETENTION)


def _finish_retention(subscription: pubsub.Subscription) -> None:
    if not subscription.HasField("expiration_policy"):
        subscription.expiration_policy.ttl.seconds = DEFAULT_TTL
    # A policy without ttl means that the subscription never expires.
    ttl = None
    if subscription.expiration_policy.HasField("ttl"):
        ttl = seconds_of(subscription.expiration_policy.ttl)
        if ttl < MIN_TTL:
            raise too_small("expiration duration", in_words(ttl), in_words(MIN_TTL))
    if not subscription.HasField("message_retention_duration"):
        seconds = DEFAULT_RETENTION if ttl is None else min(DEFAULT_RETENTION, int(ttl))
        subscription.message_retention_duration.seconds = seconds
    _check_retention(subscription.message_retention_duration)
    retention = seconds_of(subscription.message_retention_duration)
    if ttl is not None and retention > ttl:
        raise InvalidArgument(
            "The subscription's message retention duration "
            f"({in_digits(retention)} seconds) cannot be greater than the TTL in the "
            f"subscription's expiration policy ({in_digits(ttl)} seconds), since messages cannot "
            "be retained past subscription expiration."
        )


def _finish_dead_letter_policy(subscription: pubsub.Subscription) -> None:
    if not subscription.HasField("dead_letter_policy"):
        return
    policy = subscription.dead_letter_policy
    if policy.max_delivery_attempts == 0:
        policy.max_delivery_attempts = MIN_DELIVERY_ATTEMPTS
    if policy.max_delivery_attempts < MIN_DELIVERY_ATTEMPTS:
        raise too_small(
            "max_delivery_attempts", policy.max_delivery_attempts, MIN_DELIVERY_ATTEMPTS
        )
    if policy.max_delivery_attempts > MAX_DELIVERY_ATTEMPTS:
        raise too_large(
            "max_delivery_attempts", policy.max_delivery_attempts, MAX_DELIVERY_ATTEMPTS
        )


def _finish_retry_policy(subscription: pubsub.Subscription) -> None:
    if not subscription.HasField("retry_policy"):
        return
    policy = subscription.retry_policy
    if not policy.HasField("minimum_backoff"):
        policy.minimum_backoff.seconds = DEFAULT_MIN_BACKOFF
    if not policy.HasField("maximum_backoff"):
        policy.maximum_backoff.seconds = MAX_BACKOFF
    low, high = seconds_of(policy.minimum_backoff), seconds_of(policy.maximum_backoff)
    for name, value in (("minimum_backoff", low), ("maximum_backoff", high)):
        if not 0 <= value <= MAX_BACKOFF:
            raise _out_of_bounds(name, value, 0, MAX_BACKOFF)
    if high < low:
        raise InvalidArgument(
            f"The specified maximum_backoff {in_words(high)} cannot be smaller than "
            f"minimum_backoff {in_words(low)}."
        )


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise InvalidArgument if labels break a rule."""
    problem = ""
    if len(labels) > MAX_LABELS:
        problem = f"{len(labels)} labels given, at most {MAX_LABELS} are allowed"
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or key != key.lower():
            problem = (
                f"key '{key}' must have 1 to 63 characters, begin with a lowercase letter and "
                "contain only lowercase letters, digits, '_' and '-'"
            )
        elif not _LABEL_VALUE.fullmatch(value) or value != value.lower():
            problem = (
                f"value '{value}' of key '{key}' must have at most 63 characters and contain only "
                "lowercase letters, digits, '_' and '-'"
            )
    if problem:
        raise invalid_argument(f"Invalid labels: {problem}")


def _check_push_config(config: pubsub.PushConfig) -> None:
    """Raise InvalidArgument for an endpoint to which messages cannot be pushed.

    The real service requires https. Here http is allowed too, because endpoints under test have no
    certificate.
    """
    endpoint = config.push_endpoint
    if endpoint and not _is_url(endpoint):
        raise InvalidArgument(f"Invalid push endpoint given (endpoint={endpoint}). {_PUSH_HELP}")
    for key, value in config.attributes.items():
        if key == _PUSH_VERSION_KEY and value not in _PUSH_VERSIONS:
            raise InvalidArgument(
                f"Invalid push endpoint version given in push config (version={value})."
            )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        # Access to `port` raises ValueError if it is not a valid port.
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        return False
