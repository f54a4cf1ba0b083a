"""The causes of errors of object stores, in one line with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pullstream.spark.errors import IngestError
from pullstream.spark.store_errors import store_cause
from pullstream.spark.stores import store_of
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.folder_formats import check_format
from pullstream.spark.tables.iceberg import IcebergTable
from tests.subscriber.command_line import failure
from tests.subscriber.spark.tables.written import COLUMNS, FORMATS

URL = "s3://nowhere/orders"
NO_BUCKET = "the bucket does not exist (NoSuchBucket); create it, or correct the URL"


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_bucket_is_named_as_the_cause_with_the_remedy(
    format: str, s3: dict[str, str], tmp_path: Path
) -> None:
    """The text does not blame the rights."""
    made: Any
    match format:
        case "delta":
            made = DeltaLakeTable(URL, (), s3)
        case "iceberg":
            catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
            made = IcebergTable(URL, (), s3, catalog)
        case _:
            made = FileTable(URL, (), s3, is_json=format == "json")
    for act in (lambda: made.open(COLUMNS), lambda: check_format(URL, s3, format)):
        with pytest.raises(IngestError) as caught:
            act()
        assert str(caught.value).endswith(f"{URL}: {NO_BUCKET}")


@pytest.mark.parametrize("command", ["compact", "clean --older-than 7d"])
@pytest.mark.parametrize("format", ["delta", "parquet", "json"])
def test_maintenance_names_a_missing_bucket_as_the_cause(
    command: str, format: str, s3: dict[str, str]
) -> None:
    """In one line."""
    storage = [f"--storage={name}={text}" for name, text in s3.items()]
    text = failure(*command.split(), URL, "--format", format, *storage)
    assert NO_BUCKET in " ".join(text.split())
    assert not {"\x1b", "{", "<"} & set(text)


def test_a_store_that_cannot_be_reached_is_named_as_the_cause(s3: dict[str, str]) -> None:
    """By obstore, and by deltalake, whose texts differ."""
    nothing = {**s3, "aws_endpoint": "http://127.0.0.1:1"}
    with pytest.raises(IngestError) as caught:
        check_format(URL, nothing, "parquet")
    wanted = "the store cannot be reached (Connection refused); check the network and the address"
    assert f"{URL}: {wanted}" in str(caught.value)
    with pytest.raises((DeltaError, OSError)) as raised:
        DeltaTable(URL, storage_options=nothing)
    assert store_cause(raised.value).startswith(wanted)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "Error performing PUT http://h/b/x in 3ms - Server returned non-2xx status code: 403 "
            "Forbidden: <Error><Code>AccessDenied</Code></Error>\n\nDebug source:\nX {\n}",
            "the store refuses the access (AccessDenied); check the credentials, and their rights "
            "to list, read, create and delete files there",
        ),
        (
            "Kernel error -> Generic S3 error\n   \x1b[31m↳\x1b[0m Error performing GET h in 1ms - "
            "Server returned non-2xx status code\n   \x1b[31m↳\x1b[0m 403 Forbidden\n",
            "the store refuses the access (403 Forbidden); check the credentials, and their rights "
            "to list, read, create and delete files there",
        ),
        (
            "Error performing PUT http://169.254.169.254/latest/api/token in 3s, after 10 retries "
            "- HTTP error: error sending request",
            "there are no credentials for the store; give them by storage settings, such as "
            "--storage aws_access_key_id=..., or in the environment",
        ),
        (
            "Error performing GET http://h/b/x in 3ms - Server returned non-2xx status code: 400 "
            "Bad Request: <Error><Code>BadName</Code><Message>The name is bad</Message></Error>",
            "the store answers BadName: The name is bad",
        ),
        (
            "Error performing GET http://h/b/x in 3ms - Server returned non-2xx status code: 501 "
            "Not Implemented: ",
            "the store answers 501 Not Implemented",
        ),
        ("Kernel error\n   \x1b[31m↳\x1b[0m no such version", "Kernel error: no such version"),
        ("the catalog is locked by Authorization", "the catalog is locked by Authorization"),
        ("", "OSError('')"),
    ],
)
def test_the_cause_is_one_line_without_colors_and_objects_of_rust(text: str, cause: str) -> None:
    """A text that is not of an object store keeps its words."""
    assert store_cause(OSError(text)) == cause


def test_whoever_may_not_list_is_not_refused_because_of_the_format(
    s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg needs no right to list. Opening the table finds out about rights."""

    def denied(*_: object) -> None:
        raise PermissionError("Error performing GET: <Code>AccessDenied</Code>")

    monkeypatch.setattr(type(store_of(URL, s3)), "list", denied)
    check_format(URL, s3, "iceberg")
