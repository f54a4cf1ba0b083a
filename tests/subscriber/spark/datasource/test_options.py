"""The source's options: the forms that Spark users write, and the errors for wrong values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxRows

from pullstream.spark.datasource.options import (
    BatchOptions,
    Layout,
    StreamOptions,
    check_options,
)
from pullstream.spark.datasource.source import PubSubDataSource
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.settings import IngestSettings, Receivers

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
        acknowledge="Stored",
        receivers="outside",
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
        acknowledge=Acknowledge.STORED,
        receivers=Receivers.OUTSIDE,
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


def test_without_the_option_spark_divides_a_batch_among_the_cores_of_the_session() -> None:
    layout = StreamOptions.parse(REQUIRED, files_are_shared=True, cores=8).layout
    assert layout == Layout(cores=8, inline=False)


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


def test_the_spark_data_source_refuses_an_option_value_out_of_range_by_the_options_name() -> None:
    """The settings check their own ranges, and have other names."""
    with pytest.raises(ValueError, match="leaseSeconds is 5; it must be between 10 and 600 sec"):
        stream(leaseSeconds="5")
    with pytest.raises(ValueError, match=r"drainWaitMs is 0\.0; it must be 0\.1 seconds or more"):
        batch(drainWaitMs="0")
    with pytest.raises(ValueError, match=r"maxOutstandingMessages is 5; .* maxMessagesPerTrigger"):
        stream(maxOutstandingMessages="5")


def test_an_option_error_keeps_a_users_value_that_is_the_name_of_a_setting() -> None:
    """`linger` is the setting of the option `lingerMs`."""
    with pytest.raises(ValueError, match=re.escape("subscription is 'linger?', which")) as error:
        stream(subscription="linger?", project="p")
    assert "projects/p/subscriptions/linger?;" in str(error.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"leaseSeconds": "5"}, "leaseSeconds is 5"),
        ({"subscription": "a/b"}, "subscription is 'a/b'"),
        ({"maxMessages": "5", "maxMessagesPerTrigger": "5"}, "'maxMessagesPerTrigger' is unknown"),
        ({"maxMessages": "5", "drainWaitMs": "0"}, "drainWaitMs is 0.0"),
        ({"maxOutstandingMessages": "1"}, "maxOutstandingMessages is 1"),
    ],
)
def test_loading_a_spark_source_refuses_options_that_no_read_accepts(
    given: dict[str, str], problem: str
) -> None:
    """`load()` does not know whether the read is a stream. It raises the likely kind's error."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        check_options({**REQUIRED, **given})


@pytest.mark.parametrize("folder", ["hdfs://node/spool", "s3a://lake/spool", "http://host/spool"])
def test_loading_a_spark_source_refuses_a_spool_folder_that_is_the_url_of_something_else(
    folder: str,
) -> None:
    """A folder named `hdfs:` would be lost with the driver's disk."""
    problem = f"spoolDir is {folder!r}; it must be a folder, or a URL that begins with s3://, gs://"
    with pytest.raises(ValueError, match=re.escape(problem)):
        check_options({**REQUIRED, "spoolDir": folder})


def test_loading_a_spark_source_with_a_bucket_needs_the_extra_for_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pullstream.spark.spool_store.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'pullstream\[objectstore\]'"):
        check_options({**REQUIRED, "spoolDir": "gs://lake/spool"})


def test_loading_a_spark_source_refuses_settings_of_a_store_that_do_not_fit_its_spool() -> None:
    keys = {"storage.aws_access_key_id": "id", "storage.aws_secret_access_key": "hush"}
    bucket = {**REQUIRED, "spoolDir": "s3://lake/spool", **keys}
    check_options(bucket)
    with pytest.raises(ValueError, match=r"color; one of these names is unknown to"):
        check_options({**bucket, "storage.color": "secret"})
    with pytest.raises(ValueError, match=r"storage is given \(color\), but spoolDir is '/spool'"):
        check_options({**REQUIRED, "storage.color": "secret"})
    with pytest.raises(ValueError, match=r"spoolDir is 'az://lake/spool': .*[Aa]ccount"):
        check_options({**REQUIRED, "spoolDir": "az://lake/spool"})


@pytest.mark.spark
def test_spark_redacts_settings_of_a_store_that_are_secrets(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        **REQUIRED,
        "spoolDir": "az://lake/spool",
        "storage.azure_storage_account_name": "account",
        "storageSecret.azure_storage_account_key": "aHVzaA==",
    }
    spark.readStream.format("pubsub").options(**options).load().explain("extended")
    text = capsys.readouterr().out
    assert "account_name=account" in text
    assert "aHVzaA==" not in text


def test_settings_of_a_store_are_read_from_options_in_any_case_and_are_not_displayed() -> None:
    keys = {"storage.aws_access_key_id": "id", "StorageSecret.AWS_Secret_Access_Key": "hush"}
    options = stream(spoolDir="s3://lake/spool", **keys)
    assert options.settings.storage == {"aws_access_key_id": "id", "aws_secret_access_key": "hush"}
    assert "hush" not in repr(options)


@pytest.mark.parametrize("given", [{}, {"maxMessages": "5"}, {"lingerMs": "5"}])
def test_loading_a_spark_source_accepts_options_of_a_stream_or_of_a_batch_read(
    given: dict[str, str],
) -> None:
    check_options({**REQUIRED, **given})


@pytest.mark.parametrize("missing", REQUIRED)
def test_loading_a_spark_source_without_a_required_option_is_an_error(missing: str) -> None:
    rest = {name: text for name, text in REQUIRED.items() if name != missing}
    with pytest.raises(ValueError, match=f"'{missing}' is missing"):
        check_options(rest)


def test_an_option_error_of_a_stream_is_raised_by_the_readers_first_method() -> None:
    """PySpark hides an error of `streamReader` behind its own UnboundLocalError.

    `load()` accepts the options of a batch read, so only the query's start finds the error.
    """
    source = PubSubDataSource(CaseInsensitiveDict({**REQUIRED, "maxMessages": "5"}))
    reader = source.streamReader(source.schema())
    for method in (
        reader.initialOffset,
        lambda: reader.latestOffset({}, ReadMaxRows(1)),
        # The first call of a query with a batch that is not committed.
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(ValueError, match="'maxmessages' is unknown"):
            method()
