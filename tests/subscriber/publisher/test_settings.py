"""Settings of the publisher: defaults, limits, and the retries of google-api-core."""

from typing import Any

import pytest
from google.api_core import exceptions as api
from google.api_core.gapic_v1.method import DEFAULT as GOOGLES_DEFAULT
from google.api_core.retry import Retry, if_exception_type
from google.api_core.timeout import ConstantTimeout

from pullstream import (
    BatchSettings,
    LimitExceededBehavior,
    PublisherOptions,
    PublishFlowControl,
    PublishHedging,
)
from pullstream.publisher.settings import (
    DEFAULT,
    PublishPolicy,
    checked_batch_settings,
    checked_options,
    is_transient,
    policy_of,
)
from pullstream_protocol.errors import NotFound, Unavailable

POLICY = PublishPolicy()


def test_publisher_setting_defaults_are_those_of_the_official_client() -> None:
    """A program whose import is exchanged behaves as before."""
    assert BatchSettings() == (1_000_000, 0.01, 100)
    assert PublishFlowControl() == (1000, 10_000_000, LimitExceededBehavior.IGNORE)
    options = PublisherOptions()
    assert not options.enable_message_ordering
    assert options.timeout == 60
    assert options.hedging is None


def test_publish_batch_settings_above_the_servers_limits_are_reduced_to_the_limits() -> None:
    """A larger setting would make the server refuse whole requests."""
    checked = checked_batch_settings(BatchSettings(20_000_000, 1.5, 5000))
    assert checked == (10_000_000, 1.5, 1000)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (BatchSettings(max_bytes=0), "max_bytes is 0; it must be at least 1"),
        (BatchSettings(max_messages=0), "max_messages is 0; it must be at least 1"),
        (BatchSettings(max_latency=-1), "max_latency is -1; it must not be negative"),
    ],
)
def test_the_error_for_a_publish_batch_setting_out_of_range_has_its_name_and_value(
    settings: BatchSettings, text: str
) -> None:
    """The error names the setting, the value and the allowed form."""
    with pytest.raises(ValueError, match=text):
        checked_batch_settings(settings)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (PublisherOptions(hedging=PublishHedging(delay=0.05)), "hedging.delay is 0.05; it must"),
        (PublisherOptions(hedging=PublishHedging(max_tokens=0)), "hedging.max_tokens is 0"),
        (PublisherOptions(hedging=PublishHedging(refill_ratio=1)), "hedging.refill_ratio is 1"),
        (PublisherOptions(flow_control=PublishFlowControl(0)), "flow_control.message_limit is 0"),
        (
            PublisherOptions(flow_control=PublishFlowControl(1, 1, "wait")),  # type: ignore[arg-type]
            "limit_exceeded_behavior is 'wait'; it must be one of LimitExceededBehavior.IGNORE",
        ),
        (PublisherOptions(compression_bytes_threshold=-1), "threshold is -1; it must not be"),
    ],
)
def test_the_error_for_a_publisher_option_out_of_range_has_its_name_and_value(
    options: PublisherOptions, text: str
) -> None:
    """The error names the option, the value and the allowed form."""
    with pytest.raises(ValueError, match=text):
        checked_options(options)


def test_publisher_flow_control_accepts_limit_exceeded_behavior_of_the_official_client() -> None:
    """The official LimitExceededBehavior is a str with the same values."""
    from google.cloud import pubsub_v1

    official: Any = pubsub_v1.types.LimitExceededBehavior.BLOCK
    flow_control = PublishFlowControl(limit_exceeded_behavior=official)
    checked = checked_options(PublisherOptions(flow_control=flow_control))
    assert checked.flow_control.limit_exceeded_behavior is LimitExceededBehavior.BLOCK


def test_publish_retries_the_same_error_codes_as_the_official_client() -> None:
    """Errors of our classes and of google-api-core's are judged alike."""
    assert is_transient(Unavailable("away"))
    assert is_transient(api.ResourceExhausted("full"))  # type: ignore[no-untyped-call]
    assert not is_transient(NotFound("none"))
    assert not is_transient(ValueError("other"))


@pytest.mark.parametrize("default", [DEFAULT, GOOGLES_DEFAULT])
def test_publish_with_the_default_retry_and_timeout_uses_the_settings_of_the_publisher(
    default: Any,
) -> None:
    """Both ways to say default are understood."""
    own = PublishPolicy(attempt_timeout=7, give_up_after=20)
    assert policy_of(default, default, own) == own


def test_publish_follows_a_retry_object_of_google_api_core() -> None:
    """The predicate, pauses and limit of the retry are used."""
    retry = Retry(if_exception_type(api.NotFound), 0.5, 8, 3, timeout=30)
    policy = policy_of(retry, 5, POLICY)
    assert policy.is_retried(NotFound("none"))
    assert not policy.is_retried(Unavailable("away"))
    assert (policy.first_pause, policy.longest_pause, policy.factor) == (0.5, 8, 3)
    assert (policy.give_up_after, policy.attempt_timeout) == (30, 5)


def test_publish_with_retry_none_and_timeout_none_makes_one_attempt_without_a_time_limit() -> None:
    """The official client does the same."""
    policy = policy_of(None, None, POLICY)
    assert not policy.is_retried(Unavailable("away"))
    assert policy.attempt_timeout is None


def test_publish_accepts_a_timeout_object_of_google_api_core() -> None:
    """PublisherOptions of the official client has such an object."""
    timeout: Any = ConstantTimeout(12)  # type: ignore[no-untyped-call]
    assert policy_of(DEFAULT, timeout, POLICY).attempt_timeout == 12


def test_publish_refuses_retry_and_timeout_arguments_of_invalid_types() -> None:
    """The errors name the allowed values."""
    with pytest.raises(TypeError, match=r"retry is 3; it must be a google\.api_core\.retry\.Retry"):
        policy_of(3, DEFAULT, POLICY)
    with pytest.raises(ValueError, match="timeout is 0; it must be above 0 seconds"):
        policy_of(DEFAULT, 0, POLICY)
    with pytest.raises(TypeError, match="timeout is 'x'; it must be a number"):
        policy_of(DEFAULT, "x", POLICY)


@pytest.mark.parametrize("value", [None, 5, "abcd", (1,) * 99])
def test_the_error_for_a_publisher_setting_of_an_invalid_type_names_the_setting(value: Any) -> None:
    """The error names the argument and the class."""
    with pytest.raises(TypeError, match=r"^batch_settings is .*; it must be a BatchSettings"):
        checked_batch_settings(value)
    with pytest.raises(TypeError, match=r"^publisher_options is .*; it must be a PublisherOptions"):
        checked_options(value)
    with pytest.raises(TypeError, match=r"^flow_control is .*; it must be a PublishFlowControl"):
        checked_options(PublisherOptions(flow_control=value))
