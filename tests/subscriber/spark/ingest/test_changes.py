"""The options of upserts, and the columns that they name, tested without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pullstream.spark.ingest.changes import merge_columns
from pullstream.spark.ingest.config import IngestJob
from pullstream.spark.ingest.jdbc_target import JdbcTarget
from pullstream.spark.ingest.merging_target import MergingTarget
from pullstream.spark.ingest.targets import TableTarget
from pullstream.spark.tables.merge import MergeColumns
from tests.subscriber.command_line import usage_error

SUBSCRIPTION = "projects/p/subscriptions/rows"
DATABASE = "jdbc:postgresql://db/shop"
DECODING = {"decode": "json", "schema": "id BIGINT, updated_at TIMESTAMP"}

ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("updated_at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("paid", pa.bool_()),
        ("pubsub_message_id", pa.string()),
        ("pubsub_publish_time", pa.timestamp("us", "UTC")),
        ("_deleted", pa.bool_()),
    ]
)


def job(**arguments: Any) -> IngestJob:
    defaults = {"subscription": SUBSCRIPTION, "to": "/data/rows", "format": "delta", **DECODING}
    return IngestJob(**{**defaults, **arguments})


def test_changes_are_ordered_by_publish_time_unless_a_column_is_given() -> None:
    """Ties are ordered by publish time and message id, which every order ends with."""
    times = ("pubsub_publish_time", "pubsub_message_id")
    texts = frozenset({"pubsub_message_id"})
    assert merge_columns(["id"], None, ROWS) == MergeColumns(("id",), times, texts)
    assert merge_columns(["id"], "publish_time", ROWS).order == times
    assert merge_columns(["paid", "id"], "updated_at", ROWS).order == ("updated_at", *times)
    assert merge_columns(["id"], "name", ROWS).texts == {"name", "pubsub_message_id"}


def test_a_column_of_the_data_with_the_name_publish_time_is_the_order() -> None:
    """The message's own publish time has another name in the table."""
    rows = ROWS.append(pa.field("publish_time", pa.int64()))
    assert merge_columns(["id"], "publish_time", rows).order[0] == "publish_time"


@pytest.mark.parametrize(
    ("keys", "latest_by", "text"),
    [
        (["ids"], None, "merge_on has 'ids', but the schema has no column 'ids'; its columns are"),
        (["ID"], None, "merge_on has 'ID', but the schema has no column 'ID'"),
        (["pubsub_message_id"], None, "merge_on has 'pubsub_message_id', but the schema has no"),
        (["_deleted"], None, "merge_on has '_deleted', but the schema has no column"),
        (["price"], None, "merge_on has 'price', whose type is double; it must be a text, an"),
        (["id"], "age", "latest_by has 'age', but the schema has no column 'age'"),
        (["id"], "price", "latest_by has 'price', whose type is double; it must be a text, an"),
        (["id"], "paid", "latest_by has 'paid', whose type is bool; it must be a text, an integer"),
        (["id"], "id", "latest_by is 'id', which is in merge_on too; it must be a column that"),
    ],
)
def test_a_column_of_no_use_as_key_or_order_is_refused(
    keys: list[str], latest_by: str | None, text: str
) -> None:
    """The error names the option, the column and the allowed types."""
    with pytest.raises(ValueError, match="^" + text):
        merge_columns(keys, latest_by, ROWS)


@pytest.mark.parametrize("name", ["pubsub_message_id", "pubsub_publish_time"])
def test_upserts_without_the_columns_of_the_message_are_refused(name: str) -> None:
    """Without publish time and message id, ties between two changes cannot be decided."""
    rows = pa.schema([field for field in ROWS if field.name != name])
    with pytest.raises(ValueError, match=f"merge_on needs the column '{name}', which the rows do"):
        merge_columns(["id"], "updated_at", rows)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_only_the_table_of_good_rows_takes_upserts(format: str) -> None:
    """Bad rows have no key, and are appended."""
    made = job(format=format, merge_on=("id",))
    assert isinstance(made.target(ROWS), MergingTarget)
    assert isinstance(made.bad_target(ROWS), TableTarget)
    assert isinstance(job(format=format).target(ROWS), TableTarget)


def test_a_postgresql_table_takes_upserts() -> None:
    """The bad rows of a database are appended too."""
    arguments = {"to": DATABASE, "format": "jdbc", "table": "rows", "state": "/state"}
    made = job(**arguments, merge_on=("id",))
    columns = merge_columns(["id"], None, ROWS)
    assert made.target(ROWS) == JdbcTarget(DATABASE, "rows", columns=columns)
    assert made.bad_target(ROWS) == JdbcTarget(DATABASE, "rows_deadletter")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"latest_by": "updated_at"}, "latest_by is only used together with merge_on; give it too"),
        ({"delete_when": "a"}, "delete_when is only used together with merge_on; give it too"),
        (
            {"merge_on": ("id",), "format": "parquet"},
            "merge_on is given, but format is 'parquet' and to is '/data/rows'; only the formats",
        ),
        (
            {
                "merge_on": ("id",),
                "to": "jdbc:mysql://db/shop",
                "format": "jdbc",
                "table": "rows",
                "state": "/state",
            },
            "merge_on is given, but format is 'jdbc' and to is 'rows in jdbc:mysql://db/shop'",
        ),
        (
            {"merge_on": ("id",), "decode": None, "schema": None},
            "merge_on is given, but decode is missing; the key is made of columns of the data",
        ),
        ({"merge_on": ("id", "id")}, "merge_on has 'id' more than once; remove all but one"),
    ],
)
def test_options_of_upserts_that_do_not_fit_the_job_are_refused(
    arguments: dict[str, Any], text: str
) -> None:
    """The options are checked when the job is created."""
    with pytest.raises(ValueError, match="^" + text):
        job(**arguments)


def test_key_and_order_must_not_change_as_long_as_the_state_is_used() -> None:
    """Rows of another order would be replaced wrongly; the condition of deletions may change."""
    made = job(merge_on=("a", "b"), latest_by="updated_at", delete_when="x")
    assert made.identity["merge_on"] == "a, b"
    assert made.identity["latest_by"] == "updated_at"
    assert "x" not in {*made.identity.values(), *made.reading.values()}


def test_the_command_line_has_the_options_of_upserts() -> None:
    """The command passes its options to the job, which names them in its errors."""
    arguments = ("ingest", "--subscription", SUBSCRIPTION, "--to", "/data/rows", "--format")
    assert "only the formats delta and iceberg and" in usage_error(
        *arguments, "parquet", "--merge-on", "id", "--merge-on", "shop"
    )
    for option in ("--latest-by", "--delete-when"):
        error = usage_error(*arguments, "delta", option, "updated_at")
        assert "is only used together with --merge-on" in error
