"""The source's options: the forms that Spark users write, and the errors for wrong values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pullstream.spark.datasource.options import BatchOptions, Layout, StreamOptions
from pullstream.spark.session.settings import IngestSettings

REQUIRED = {"subscription": "projects/p/subscriptions/sub", "spoolDir": "/spool"}


def stream(**given: str) -> StreamOptions:
    return StreamOptions.parse({**REQUIRED, **given}, files_are_shared=False)


def batch(**given: str) -> BatchOptions:
    return BatchOptions.parse({**REQUIRED, **given}, files_are_shared=False)


def test_a_spark_streaming_read_needs_only_the_options_subscription_and_spool_dir() -> None:
    """All other options have the defaults of the settings."""
    options = stream()
    assert options.settings == IngestSettings(
        subscription="projects/p/subscriptions/sub", spool_dir=Path("/spool")
    )
    assert options.layout == Layout()


def test_each_option_of_a_spark_streaming_read_sets_its_own_setting() -> None:
    """Option names are Spark's. Units are in the name or in the value."""
    options = stream(
        endpoint="localhost:8085",
        token="secret",
        ca="/ca.pem",
        cert="/cert.pem",
        key="/key.pem",
        maxMessagesPerTrigger="50",
        maxBytesPerTrigger="2m",
        lingerMs="250",
        idleWaitMs="1500",
        drainWaitMs="100",
        maxOutstandingMessages="500",
        maxOutstandingBytes="1g",
        leaseSeconds="30",
        dedupWindow="48h",
        dedupMessages="7000",
        maxSpoolBytes="10 GB",
        failOnMissingSegment="false",
        includeSubscription="TRUE",
    )
    assert options.settings == IngestSettings(
        subscription="projects/p/subscriptions/sub",
        spool_dir=Path("/spool"),
        endpoint="localhost:8085",
        token="secret",
        ca="/ca.pem",
        cert="/cert.pem",
        key="/key.pem",
        max_messages_per_trigger=50,
        max_bytes_per_trigger=2 * 2**20,
        linger=0.25,
        idle_wait=1.5,
        drain_wait=0.1,
        max_outstanding_messages=500,
        max_outstanding_bytes=2**30,
        lease_seconds=30,
        dedup_window=48 * 3600.0,
        dedup_messages=7000,
        max_spool_bytes=10 * 2**30,
        fail_on_missing_segment=False,
        include_subscription=True,
    )


def test_spark_option_names_are_case_insensitive() -> None:
    """Spark's own map of options does not keep the case."""
    given = {name.lower(): text for name, text in {**REQUIRED, "lingerMs": "20"}.items()}
    options = StreamOptions.parse(given, files_are_shared=False)
    assert options.settings.linger == 0.02


def test_a_short_subscription_name_in_spark_options_is_completed_with_the_project() -> None:
    """A short name is completed as in all of Google's tools."""
    assert stream(subscription="sub", project="q").settings.subscription == (
        "projects/q/subscriptions/sub"
    )


def test_spark_options_set_the_number_of_partitions_and_how_rows_are_assigned_to_them() -> None:
    """The layout has the number of partitions and the rule that assigns rows to them."""
    layout = stream(numPartitions="3", partitionBy="orderingkey").layout
    assert layout == Layout(partitions=3, by_key=True)


@pytest.mark.parametrize(
    ("transport", "shared", "inline"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("inline", True, True),
        ("file", False, False),
    ],
)
def test_rows_are_sent_with_spark_tasks_if_executors_cannot_read_the_spool_folder(
    transport: str, shared: bool, inline: bool
) -> None:
    """By default, rows travel with the partition if executors may not see the spool."""
    given = {**REQUIRED, "transport": transport}
    assert StreamOptions.parse(given, files_are_shared=shared).layout.inline == inline


def test_options_of_a_spark_batch_read_set_its_limits_of_messages_bytes_and_time() -> None:
    """The limits are those of a single trigger, and the leases have the maximum length."""
    settings = batch(maxMessages="500", maxBytes="3k", maxSeconds="2").settings
    assert settings.max_messages_per_trigger == 500
    assert settings.max_bytes_per_trigger == 3072
    assert settings.linger == 2.0
    assert settings.lease_seconds == 600


@pytest.mark.parametrize("missing", REQUIRED)
def test_the_error_for_a_missing_required_spark_option_describes_the_option(missing: str) -> None:
    """The error describes the missing option."""
    given = {name: text for name, text in REQUIRED.items() if name != missing}
    with pytest.raises(ValueError, match=f"'{missing}' is missing; readStream needs"):
        StreamOptions.parse(given, files_are_shared=False)


def test_the_error_for_an_unknown_spark_option_lists_the_allowed_options() -> None:
    """The error lists all allowed options and suggests the closest one."""
    with pytest.raises(ValueError, match="'maxMessagePerTrigger' is unknown") as caught:
        stream(maxMessagePerTrigger="5")
    text = str(caught.value)
    assert "(did you mean 'maxMessagesPerTrigger'?)" in text
    assert {"subscription", "spoolDir", "lingerMs", "transport"} <= set(re.findall(r"\w+", text))


@pytest.mark.parametrize("name", ["credentials", "credentialsFile", "privateKey", "accessToken"])
def test_the_spark_data_source_refuses_google_credentials_in_its_options(name: str) -> None:
    """Options are visible in plans, logs and Spark's web page."""
    with pytest.raises(ValueError, match="Google's credentials come from the environment"):
        stream(**{name: "secret"})


def test_the_token_option_of_spark_can_name_a_file_with_the_token(tmp_path: Path) -> None:
    """A token from a file is in no option, which Spark may show, and in no error or repr."""
    path = tmp_path / "token"
    path.write_text("s3cret\n", encoding="ascii")
    options = stream(tokenFile=str(path))
    assert options.settings.connection.get("token") == "s3cret"
    assert "s3cret" not in repr(options)
    with pytest.raises(ValueError, match="'token' and 'tokenFile' exclude each other") as refused:
        stream(tokenFile=str(path), token="s3cret")
    assert "s3cret" not in str(refused.value)


def test_spark_options_of_batch_reads_are_refused_by_streaming_reads_and_vice_versa() -> None:
    """A stream has no maxMessages, and a batch read has no maxMessagesPerTrigger."""
    with pytest.raises(ValueError, match="'maxMessages' is unknown"):
        stream(maxMessages="5")
    with pytest.raises(ValueError, match="'maxMessagesPerTrigger' is unknown"):
        batch(maxMessagesPerTrigger="5")


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("maxMessagesPerTrigger", "many", "a whole number, 1 or more"),
        ("maxMessagesPerTrigger", "0", "a whole number, 1 or more"),
        ("maxBytesPerTrigger", "5 parsecs", "a number of bytes, such as"),
        ("lingerMs", "-1", "a number of milliseconds"),
        ("lingerMs", "inf", "a number of milliseconds"),
        ("lingerMs", "nan", "a number of milliseconds"),
        ("dedupWindow", "3600", "a duration with its unit"),
        ("includeSubscription", "yes", "true or false"),
        ("transport", "pigeon", "auto or inline or file"),
        ("subscription", " ", "a non-empty text"),
    ],
)
def test_the_error_for_an_invalid_spark_option_names_its_value_and_the_valid_form(
    name: str, text: str, form: str
) -> None:
    """The error gives the option, its value, and the allowed form."""
    with pytest.raises(
        ValueError, match=re.escape(f"option {name!r} is {text!r}; it must be")
    ) as e:
        stream(**{name: text})
    assert form in str(e.value)


def test_the_spark_data_source_refuses_an_option_value_out_of_range() -> None:
    """The settings check their own ranges."""
    with pytest.raises(ValueError, match="between 10 and 600 seconds"):
        stream(leaseSeconds="5")
    with pytest.raises(ValueError, match=r"drain_wait is 0\.0; it must be 0\.1 seconds or more"):
        batch(drainWaitMs="0")
