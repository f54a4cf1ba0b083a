"""A table in a database as a target."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructType

from .errors import IngestError
from .java_error import reason_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Credentials have no business on a command line, nor among the settings of a job.
USER_VARIABLE = "PULLSTREAM_JDBC_USER"
PASSWORD_VARIABLE = "PULLSTREAM_JDBC_PASSWORD"

# Where a URL may hold a password: before the host, and in what is behind the database.
_SECRETS = re.compile(r"(?<=//)[^/@]*@|(?<=:)[^/:@]+/[^/@]+@|[?;].*")

# Columns of a staging table alone: the number of a row in its batch, the same however often a task
# is run, and one that each time is another.
_ROW, _COPY = "ingest_row", "ingest_copy"

# PostgreSQL cuts names to 63 bytes without a word. Of a staging table's, the table's own with `_`
# and the id of a run, 16 letters, must be left: then it is no other table's.
_POSTGRESQL = "jdbc:postgresql:"
_LONGEST = 63 - 17

# The kinds of columns that databases do not share; they become JSON.
_NESTED = (MapType, ArrayType, StructType)


@dataclass(frozen=True)
class JdbcTarget:
    """A table, and beside it one of the batches that are in it.

    Spark's own writer opens a connection for each partition, so a batch could be there in part.
    Therefore it fills a staging table, which is replaced when the batch comes again. Then one
    transaction copies that into the table and notes the batch: killed before its end, nothing has
    happened; after it, the note says that nothing is left to do.

    Spark runs a task again whose executor is lost, or slow, and the rows of both may be in the
    staging table then. So each row has a number there, and is copied once.

    driver: the class of the JDBC driver; None: the one that knows the URL.

    Raises:
        ValueError: the table's name is too long to make others of it.
    """

    url: str
    table: str
    driver: str | None = None

    def __post_init__(self) -> None:
        size = len(self.table.rpartition(".")[2].encode())
        if self.url.startswith(_POSTGRESQL) and size > _LONGEST:
            raise ValueError(
                f"table is {self.table!r}, a name of {size} bytes; in PostgreSQL it must have "
                f"{_LONGEST} at most, because the job makes longer ones of it for tables of its "
                "own, which PostgreSQL would cut until they are the same: choose a shorter one"
            )

    @property
    def place(self) -> str:
        return f"{self.table} in {_SECRETS.sub('', self.url)}"

    @property
    def reserved(self) -> tuple[str, ...]:
        return (_ROW, _COPY)

    def is_apart_from(self, other: JdbcTarget) -> bool:
        """Whether neither has a table of the other's. Databases make no difference by case."""
        mine, others = (
            {name.lower() for name in (target.table, target._batches)} for target in (self, other)
        )
        return mine.isdisjoint(others)

    def check(self, spark: SparkSession) -> None:
        """Connect, and make the table of batches unless it is there."""
        if not self._exists(spark, self._batches):
            definition = "(batch VARCHAR(64) NOT NULL PRIMARY KEY)"
            self._run(spark, f"CREATE TABLE {self._batches} {definition}")

    def may_have(self, spark: SparkSession, batch: str) -> bool:
        return self._holds(spark, f"SELECT 1 FROM {self._batches} WHERE batch = '{batch}'")

    def write(self, rows: DataFrame, batch: str) -> bool:
        spark, staging = rows.sparkSession, self._staging(batch)
        known = self.may_have(spark, batch)
        if not known:
            self.stage(rows, batch)
            self.take_in(spark, rows.columns, batch)
        # Also where a killed run left it behind.
        if self._exists(spark, staging):
            self._run(spark, f"DROP TABLE {staging}")
        return not known

    def stage(self, rows: DataFrame, batch: str) -> None:
        """Put the batch into its staging table, and see to it that there is a table."""
        flat = rows.select(*(_flat(rows, name) for name in rows.columns))
        anew = F.xxhash64(F.reflect(F.lit("java.util.UUID"), F.lit("randomUUID")))
        numbered = flat.select("*", F.monotonically_increasing_id().alias(_ROW), anew.alias(_COPY))
        self._write(numbered, self._staging(batch), "overwrite")
        # Without rows: Spark knows the database's types.
        self._write(flat.limit(0), self.table, "append")

    def take_in(self, spark: SparkSession, columns: Sequence[str], batch: str) -> None:
        """Copy these columns of what is staged into the table, each row once, and note the batch.

        All of it in one transaction.
        """
        staging, quoted = self._staging(batch), self._dialect(spark).quoteIdentifier
        names = [quoted(name) for name in columns]
        row, copy = quoted(_ROW), quoted(_COPY)
        # In a form that all databases know; they make a hash join of it.
        self._run(
            spark,
            f"INSERT INTO {self.table} ({', '.join(names)}) "
            f"SELECT {', '.join(f's.{name}' for name in names)} FROM {staging} s JOIN "
            f"(SELECT {row}, MIN({copy}) {copy} FROM {staging} GROUP BY {row}) k "
            f"ON s.{row} = k.{row} AND s.{copy} = k.{copy}",
            f"INSERT INTO {self._batches} (batch) VALUES ('{batch}')",
        )

    @property
    def _batches(self) -> str:
        return f"{self.table}_batches"

    def _staging(self, batch: str) -> str:
        return f"{self.table}_{batch.replace('-', '_')}"

    def _options(self) -> dict[str, str]:
        known = {
            "driver": self.driver,
            "user": os.environ.get(USER_VARIABLE),
            "password": os.environ.get(PASSWORD_VARIABLE),
        }
        return {name: value for name, value in known.items() if value is not None}

    def _write(self, rows: DataFrame, table: str, mode: str) -> None:
        rows.write.jdbc(self.url, table, mode=mode, properties=self._options())

    def _dialect(self, spark: SparkSession) -> Any:
        jvm: Any = spark._jvm
        return jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self.url)

    @contextmanager
    def _connection(self, spark: SparkSession) -> Iterator[Any]:
        """A connection as Spark's own writer opens it, in a transaction that ends with the block:
        rolled back unless it was committed."""
        jvm: Any = spark._jvm
        try:
            options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
                self.url, self.table, jvm.PythonUtils.toScalaMap(self._options())
            )
            # -1: from the driver, for no partition.
            connection = self._dialect(spark).createConnectionFactory(options).apply(-1)
        except Py4JJavaError as error:
            raise IngestError(
                f"cannot connect to {self.place}: {reason_of(error)}; user and password come from "
                f"{USER_VARIABLE} and {PASSWORD_VARIABLE}, the driver from spark.jars"
            ) from error
        try:
            connection.setAutoCommit(False)
            yield connection
        finally:
            connection.rollback()
            connection.close()

    def _run(self, spark: SparkSession, *statements: str) -> None:
        """All of the statements in one transaction, or none."""
        with self._connection(spark) as connection:
            for statement in statements:
                try:
                    connection.createStatement().executeUpdate(statement)
                except Py4JJavaError as error:
                    raise IngestError(f"{self.place}: {statement}: {reason_of(error)}") from error
            connection.commit()

    def _holds(self, spark: SparkSession, query: str) -> bool:
        """Whether the query has a result."""
        with self._connection(spark) as connection:
            found: bool = connection.createStatement().executeQuery(query).next()
            return found

    def _exists(self, spark: SparkSession, table: str) -> bool:
        """Whether the table can be read, which is how Spark itself finds out."""
        try:
            self._holds(spark, self._dialect(spark).getTableExistsQuery(table))
        except Py4JJavaError:
            return False
        return True


def _flat(rows: DataFrame, name: str) -> Column:
    column = rows[name]
    if isinstance(rows.schema[name].dataType, _NESTED):
        return F.to_json(column).alias(name)
    return column
