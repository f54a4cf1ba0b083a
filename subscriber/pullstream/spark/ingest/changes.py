"""Messages that are changes of rows: their keys, their order and their deletions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, StructField, StructType

from pullstream.spark.tables.merge import DELETED, PUBLISHED, MergeColumns

from .decoding import PREFIX, Decoding, JsonDecoding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Name of the message's publish time as an order.
PUBLISH_TIME = "publish_time"

# To which PySpark writes errors of expressions.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_MESSAGE_ID = f"{PREFIX}message_id"

_TIMES_AND_NUMBERS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
)
_KEYS = (*_TIMES_AND_NUMBERS, pa.types.is_boolean, pa.types.is_binary)


def merge_columns(keys: Sequence[str], latest_by: str | None, schema: pa.Schema) -> MergeColumns:
    """Return the columns by which changes are matched and compared.

    Args:
        keys: Names of the columns of the key.
        latest_by: Name of the column that tells which change is newer, or "publish_time". Default:
            the publish time.
        schema: The columns of the rows.

    Raises:
        ValueError: A column does not exist or has a type without a use for that, or the rows
            lack the columns of the message.
    """
    own = [name for name in schema.names if not name.startswith(PREFIX) and name != DELETED]
    for name in keys:
        _check("merge_on", name, own, schema, _KEYS)
    for name in (PUBLISHED, _MESSAGE_ID):
        if name not in schema.names:
            raise ValueError(
                f"merge_on needs the column {name!r}, which the rows do not have: of changes that "
                "are equal in latest_by, the newer one is found by publish time and message id. "
                "Write the columns of the message"
            )
    order = [PUBLISHED, _MESSAGE_ID]
    if latest_by is not None and (latest_by in own or latest_by != PUBLISH_TIME):
        _check("latest_by", latest_by, own, schema, _TIMES_AND_NUMBERS)
        if latest_by in keys:
            raise ValueError(
                f"latest_by is {latest_by!r}, which is in merge_on too; it must be a column that "
                "differs between two changes of a key"
            )
        order.insert(0, latest_by)
    texts = frozenset(name for name in order if pa.types.is_string(schema.field(name).type))
    return MergeColumns(tuple(keys), tuple(order), texts)


def _check(
    option: str,
    name: str,
    own: Sequence[str],
    schema: pa.Schema,
    allowed: Sequence[Callable[[pa.DataType], bool]],
) -> None:
    if name not in own:
        raise ValueError(
            f"{option} has {name!r}, but the schema has no column {name!r}; its columns are "
            f"{', '.join(own)}"
        )
    kind = schema.field(name).type
    if not any(test(kind) for test in allowed):
        raise ValueError(
            f"{option} has {name!r}, whose type is {kind}; it must be a text, an integer, a "
            "DECIMAL, a DATE or a time" + (", BOOLEAN or BINARY" if option == "merge_on" else "")
        )


@dataclass(frozen=True)
class Changes:
    """Decoding of messages that change rows. It adds the column `_deleted`.

    Attributes:
        decoding: Decoding of the rows. A message without a value in a key is bad in it.
        delete_when: SQL condition on the columns of a row that the message deletes the row.
            Default: none does.
    """

    decoding: Decoding
    delete_when: str | None = None

    @classmethod
    def of(
        cls, decoding: JsonDecoding, keys: Sequence[str], delete_when: str | None = None
    ) -> Changes:
        """Return the decoding of changes by a key.

        Args:
            decoding: Decoding of the rows.
            keys: Names of the columns of the key.
            delete_when: See the attribute.

        Raises:
            ValueError: The schema has a column `_deleted`.
        """
        fields = decoding.schema.fields
        for field in fields:
            if field.name.lower() == DELETED:
                raise ValueError(
                    f"schema has the column {field.name!r}, whose name is reserved: with merge_on "
                    "the job adds it itself; rename it"
                )
        required = [
            StructField(field.name, field.dataType, field.nullable and field.name not in keys)
            for field in fields
        ]
        return cls(replace(decoding, schema=StructType(required)), delete_when)

    @property
    def required(self) -> frozenset[str]:
        """The columns that are never null, the key among them."""
        return self.decoding.required | {DELETED}

    def columns(self, messages: StructType) -> StructType:
        """Return the columns of the changes; see Decoding."""
        deleted = StructField(DELETED, BooleanType())
        return StructType([*self.decoding.columns(messages).fields, deleted])

    def bad_columns(self, messages: StructType) -> StructType:
        """Return the columns of the bad messages; see Decoding."""
        return self.decoding.bad_columns(messages)

    def read(self, messages: DataFrame, batch: str) -> DataFrame:
        """Add the helper columns; see Decoding."""
        return self.decoding.read(messages, batch)

    def counts(self) -> Mapping[str, Column]:
        """Return the numbers of each row; see Decoding."""
        return self.decoding.counts()

    def unknown(self) -> Column | None:
        """Return the paths that the table leaves out; see Decoding."""
        return self.decoding.unknown()

    def is_bad(self) -> Column:
        """Return the condition of bad rows; see Decoding."""
        return self.decoding.is_bad()

    def good(self, read: DataFrame) -> DataFrame:
        """Return the changes, with the column `_deleted`.

        Raises:
            ValueError: `delete_when` is not a condition on the columns.
        """
        rows = self.decoding.good(read)
        if self.delete_when is None:
            return rows.withColumn(DELETED, F.lit(False))
        try:
            with _without_log():
                condition = F.expr(self.delete_when)
                kind = rows.select(condition.alias(DELETED)).schema[DELETED].dataType
        except PySparkException as error:
            raise _no_condition(self.delete_when, str(error).strip().splitlines()[0]) from error
        if not isinstance(kind, BooleanType):
            raise _no_condition(self.delete_when, f"its type is {kind.simpleString()}")
        return rows.withColumn(DELETED, F.coalesce(condition, F.lit(False)))

    def bad(self, read: DataFrame) -> DataFrame:
        """Return the bad messages; see Decoding."""
        return self.decoding.bad(read)


@contextmanager
def _without_log() -> Iterator[None]:
    """Let PySpark not print errors of expressions, which are raised, to stderr as JSON."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [one.disabled for one in loggers]
    try:
        for one in loggers:
            one.disabled = True
        yield
    finally:
        for one, was_disabled in zip(loggers, before, strict=True):
            one.disabled = was_disabled


def _no_condition(text: str, reason: str) -> ValueError:
    return ValueError(
        f"delete_when is {text!r}; it must be an SQL condition on columns of the table, such as "
        f"\"op = 'D'\" ({reason})"
    )
