"""Target for a table in a database."""

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

from pullstream.spark.errors import IngestError
from pullstream.spark.local.java_error import reason_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Credentials do not belong on a command line or in the settings of a job.
USER_VARIABLE = "PULLSTREAM_JDBC_USER"
PASSWORD_VARIABLE = "PULLSTREAM_JDBC_PASSWORD"

# Parts of a URL that may contain a password: before the host, and after the database.
_SECRETS = re.compile(r"(?<=//)[^/@]*@|(?<=:)[^/:@]+/[^/@]+@|[?;].*")

# Columns of the staging table only: the number of a row in its batch, which is the same in each
# attempt of a task, and a random number, which differs in each attempt.
_ROW, _COPY = "ingest_row", "ingest_copy"

# PostgreSQL silently truncates names to 63 bytes. The part of a staging table's name with the
# table, `_` and the 16-letter id of the run must remain, so that the name is unique.
_POSTGRESQL = "jdbc:postgresql:"
_LONGEST = 63 - 17

# Types that databases do not have in common; such columns are converted to JSON.
_NESTED = (MapType, ArrayType, StructType)


@dataclass(frozen=True)
class JdbcTarget:
    """A table, with a second table of the batches that it contains.

    Spark's writer opens a connection for each partition, so it could leave part of a batch in the
    table. Therefore it fills a staging table, which is replaced if the batch is passed again. Then
    one transaction copies the rows into the table and records the batch. A kill before the end of
    the transaction changes nothing; after it, the record shows that nothing is left to do.

    Spark repeats a task whose executor is lost or slow, and the staging table may then contain the
    rows of both attempts. So each row has a number there and is copied once.

    Attributes:
        url: URL of the database.
        table: Name of the table.
        driver: Class of the JDBC driver. None: the driver that accepts the URL.

    Raises:
        ValueError: The table's name is too long to derive other names from it.
    """

    url: str
    table: str
    driver: str | None = None

    def __post_init__(self) -> None:
        size = len(self.table.rpartition(".")[2].encode())
        if self.url.startswith(_POSTGRESQL) and size > _LONGEST:
            raise ValueError(
                f"table is {self.table!r}, a name of {size} bytes; in PostgreSQL it must have at "
                f"most {_LONGEST}, because the job derives longer names from it for its own "
                "tables, and PostgreSQL would truncate these to the same name; choose a shorter one"
            )

    @property
    def place(self) -> str:
        """The table and the URL of its database, without credentials."""
        return f"{self.table} in {_SECRETS.sub('', self.url)}"

    @property
    def reserved(self) -> tuple[str, ...]:
        """Names of the columns that only the staging table has."""
        return (_ROW, _COPY)

    def is_apart_from(self, other: JdbcTarget) -> bool:
        """Return whether the two have no table in common. Databases ignore case."""
        mine, others = (
            {name.lower() for name in (target.table, target._batches)} for target in (self, other)
        )
        return mine.isdisjoint(others)

    def check(self, spark: SparkSession) -> None:
        """Connect to the database, and create the table of batches if it does not exist."""
        if not self._exists(spark, self._batches):
            definition = "(batch VARCHAR(64) NOT NULL PRIMARY KEY)"
            self._run(spark, f"CREATE TABLE {self._batches} {definition}")

    def may_have(self, spark: SparkSession, batch: str) -> bool:
        """Return whether the table of batches contains this batch."""
        return self._holds(spark, f"SELECT 1 FROM {self._batches} WHERE batch = '{batch}'")

    def write(self, rows: DataFrame, batch: str) -> bool:
        """Stage the rows and copy them to the table in one transaction, unless it has the batch."""
        spark, staging = rows.sparkSession, self._staging(batch)
        known = self.may_have(spark, batch)
        if not known:
            self.stage(rows, batch)
            self.take_in(spark, rows.columns, batch)
        # Also if a killed run has left it.
        if self._exists(spark, staging):
            self._run(spark, f"DROP TABLE {staging}")
        return not known

    def stage(self, rows: DataFrame, batch: str) -> None:
        """Write the batch to its staging table, and create the table if it does not exist."""
        flat = rows.select(*(_flat(rows, name) for name in rows.columns))
        anew = F.xxhash64(F.reflect(F.lit("java.util.UUID"), F.lit("randomUUID")))
        numbered = flat.select("*", F.monotonically_increasing_id().alias(_ROW), anew.alias(_COPY))
        self._write(numbered, self._staging(batch), "overwrite")
        # Without rows: Spark knows the database's types and creates the table.
        self._write(flat.limit(0), self.table, "append")

    def take_in(self, spark: SparkSession, columns: Sequence[str], batch: str) -> None:
        """Copy the staged rows into the table, each once, and record the batch, in one transaction.

        Args:
            spark: The session.
            columns: Names of the columns to copy.
            batch: Name of the batch.
        """
        staging, quoted = self._staging(batch), self._dialect(spark).quoteIdentifier
        names = [quoted(name) for name in columns]
        row, copy = quoted(_ROW), quoted(_COPY)
        # SQL that all databases understand; they execute it as a hash join.
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
        """Open a connection as Spark's writer does, in a transaction for the block.

        The transaction is rolled back unless the block commits it.
        """
        jvm: Any = spark._jvm
        try:
            options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
                self.url, self.table, jvm.PythonUtils.toScalaMap(self._options())
            )
            # -1: on the driver, for no partition.
            connection = self._dialect(spark).createConnectionFactory(options).apply(-1)
        except Py4JJavaError as error:
            raise IngestError(
                f"cannot connect to {self.place}: {reason_of(error)}. Set user and password in "
                f"{USER_VARIABLE} and {PASSWORD_VARIABLE}, and the driver in spark.jars"
            ) from error
        try:
            connection.setAutoCommit(False)
            yield connection
        finally:
            connection.rollback()
            connection.close()

    def _run(self, spark: SparkSession, *statements: str) -> None:
        """Execute all statements in one transaction."""
        with self._connection(spark) as connection:
            for statement in statements:
                try:
                    connection.createStatement().executeUpdate(statement)
                except Py4JJavaError as error:
                    raise IngestError(f"{self.place}: {statement}: {reason_of(error)}") from error
            connection.commit()

    def _holds(self, spark: SparkSession, query: str) -> bool:
        """Return whether the query has a result."""
        with self._connection(spark) as connection:
            found: bool = connection.createStatement().executeQuery(query).next()
            return found

    def _exists(self, spark: SparkSession, table: str) -> bool:
        """Return whether the table can be read, which is also Spark's test for existence."""
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
