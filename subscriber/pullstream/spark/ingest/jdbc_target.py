"""Target for a table in a database."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructType

from pullstream.spark.errors import IngestError
from pullstream.spark.local.java_error import reason_of
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.merge import MergeColumns

from .targets import Written

if TYPE_CHECKING:
    import pyarrow as pa
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
POSTGRESQL = "jdbc:postgresql:"
_LONGEST = 63 - 17

# Java finds a driver by the URL only on its own class path, which spark.jars does not extend.
_POSTGRESQL_DRIVER = "org.postgresql.Driver"

# Types that databases do not have in common; such columns are converted to JSON.
_NESTED = (MapType, ArrayType, StructType)


@dataclass(frozen=True)
class JdbcTarget:
    """A table, with a second table of the newest batch of each source.

    Spark's writer opens a connection for each partition, so it could leave part of a batch in the
    table. Therefore it fills a staging table. Then one transaction copies the rows into the table
    and raises the number of the source's newest batch. A kill before the end of the transaction
    changes nothing; after it, the number shows that nothing is left to do. Of two drivers with the
    same batch, the second one finds the raised number, because the first holds the row's lock.

    Spark repeats a task whose executor is lost or slow, and the staging table may then contain the
    rows of both attempts. So each row has a number there and is copied once.

    Attributes:
        url: URL of the database.
        table: Name of the table.
        driver: Class of the JDBC driver. None: PostgreSQL's, or the driver that accepts the URL.
        columns: The columns by which changes are matched and compared, if rows are changes. Only
            for PostgreSQL.

    Raises:
        ValueError: The table's name is too long to derive other names from it.
    """

    url: str
    table: str
    driver: str | None = None
    columns: MergeColumns | None = None

    def __post_init__(self) -> None:
        size = len(self.table.rpartition(".")[2].encode())
        if self.url.startswith(POSTGRESQL) and size > _LONGEST:
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

    @property
    def needs_spark(self) -> bool:
        """True: Java has the driver of the database."""
        return True

    def open(self, spark: SparkSession | None, schema: pa.Schema) -> None:
        """Connect to the database, and create the table of batches if it does not exist."""
        assert spark is not None, "see needs_spark"
        if not self._exists(spark, self._batches):
            self._run(
                spark,
                f"CREATE TABLE {self._batches} (source VARCHAR(64) NOT NULL PRIMARY KEY, "
                "newest BIGINT NOT NULL, staging VARCHAR(255) NOT NULL)",
            )
        if self._exists(spark, self.table):
            self._make_unique(spark)

    def newest(self, spark: SparkSession | None, source: str) -> int:
        """Return the number of the newest batch of a source; -1 if there is none."""
        assert spark is not None, "see needs_spark"
        found = self._first(spark, f"SELECT newest FROM {self._batches} WHERE source = '{source}'")
        return -1 if found is None else int(found)

    def write(self, rows: DataFrame, batch: BatchName) -> Written:
        """Write the batch to its staging table."""
        spark, source = rows.sparkSession, batch.source
        staged = StagedRows(self, rows, batch, f"{self.table}_{uuid.uuid4().hex[:16]}")
        left = self._first(spark, f"SELECT staging FROM {self._batches} WHERE source = '{source}'")
        if left is None:
            self._run(spark, f"INSERT INTO {self._batches} VALUES ('{source}', -1, '')")
        elif left and self._exists(spark, left):
            # A killed run has left it.
            self.drop(spark, left)
        noted = f"UPDATE {self._batches} SET staging = '{staged.table}' WHERE source = '{source}'"
        self._run(spark, noted)
        self.stage(rows, staged.table)
        return staged

    def stage(self, rows: DataFrame, staging: str) -> None:
        """Write rows to a staging table, and create the table if it does not exist."""
        spark = rows.sparkSession
        flat = rows.select(*(_flat(rows, name) for name in rows.columns))
        anew = F.xxhash64(F.reflect(F.lit("java.util.UUID"), F.lit("randomUUID")))
        numbered = flat.select("*", F.monotonically_increasing_id().alias(_ROW), anew.alias(_COPY))
        self._write(numbered, staging, "overwrite")
        if self.columns is not None and not self._exists(spark, self.table):
            # In one transaction: a run may be killed here, and other writers may insert rows.
            quoted = self._dialect(spark).quoteIdentifier
            self._run(spark, *table_statements(self.table, staging, self.columns.keys, quoted))
            return
        # Without rows: Spark knows the database's types and creates the table.
        self._write(flat.limit(0), self.table, "append")
        self._make_unique(spark)

    def take_in(
        self, spark: SparkSession, columns: Sequence[str], staging: str, batch: BatchName
    ) -> bool:
        """Copy the staged rows into the table, each once, and record the batch, in one transaction.

        Args:
            spark: The session.
            columns: Names of the columns to copy.
            staging: Name of the staging table.
            batch: Name of the batch.

        Returns:
            Whether the table did not have the batch.
        """
        quoted = self._dialect(spark).quoteIdentifier
        return self._run(
            spark,
            f"UPDATE {self._batches} SET newest = {batch.number} "
            f"WHERE source = '{batch.source}' AND newest < {batch.number}",
            self._copy(columns, staging, quoted)
            if self.columns is None
            else merge_statement(self.table, staging, columns, self.columns, quoted),
            if_changed=True,
        )

    def _copy(self, columns: Sequence[str], staging: str, quoted: Callable[[str], str]) -> str:
        """Return the statement that copies the staged rows, each once."""
        names = [quoted(name) for name in columns]
        row, copy = quoted(_ROW), quoted(_COPY)
        # SQL that all databases understand; they execute it as a hash join.
        return (
            f"INSERT INTO {self.table} ({', '.join(names)}) "
            f"SELECT {', '.join(f's.{name}' for name in names)} FROM {staging} s JOIN "
            f"(SELECT {row}, MIN({copy}) {copy} FROM {staging} GROUP BY {row}) k "
            f"ON s.{row} = k.{row} AND s.{copy} = k.{copy}"
        )

    def _make_unique(self, spark: SparkSession) -> None:
        """Check that the key is unique in the table, which a new table gets an index for.

        Raises:
            IngestError: The table has rows, and the key is not unique.
        """
        if self.columns is None:
            return
        quoted = self._dialect(spark).quoteIdentifier
        keys = ", ".join(quoted(name) for name in self.columns.keys)
        index = _index_statement(self.table, self.columns.keys, quoted)
        try:
            # PostgreSQL looks for the index when it plans the statement.
            self._first(
                spark,
                f"EXPLAIN INSERT INTO {self.table} ({keys}) SELECT {keys} FROM {self.table} "
                f"ON CONFLICT ({keys}) DO NOTHING",
            )
        except Py4JJavaError as error:
            if self._first(spark, f"SELECT 1 FROM {self.table} LIMIT 1") is not None:
                raise IngestError(
                    f"{self.place} has no unique index on the key, which upserts need "
                    f"({reason_of(error)}); create one: {index}"
                ) from error
            self._run(spark, index)

    def staged(self, spark: SparkSession, staging: str) -> int:
        """Return the number of staged rows."""
        row = self._dialect(spark).quoteIdentifier(_ROW)
        return int(self._first(spark, f"SELECT COUNT(DISTINCT {row}) FROM {staging}") or 0)

    def drop(self, spark: SparkSession, staging: str) -> None:
        """Drop a staging table."""
        self._run(spark, f"DROP TABLE {staging}")

    @property
    def _batches(self) -> str:
        return f"{self.table}_batches"

    def _options(self) -> dict[str, str]:
        is_postgresql = self.url.startswith(POSTGRESQL)
        known = {
            "driver": self.driver or (_POSTGRESQL_DRIVER if is_postgresql else None),
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

    def _run(self, spark: SparkSession, *statements: str, if_changed: bool = False) -> bool:
        """Execute all statements in one transaction.

        Args:
            spark: The session.
            statements: The statements.
            if_changed: Do nothing if the first statement changes no row.

        Returns:
            Whether the first statement changed a row.
        """
        with self._connection(spark) as connection:
            for statement in statements:
                try:
                    rows = connection.createStatement().executeUpdate(statement)
                except Py4JJavaError as error:
                    raise IngestError(f"{self.place}: {statement}: {reason_of(error)}") from error
                if if_changed and statement is statements[0] and not rows:
                    return False
            connection.commit()
            return True

    def _first(self, spark: SparkSession, query: str) -> str | None:
        """Return the first value of the query's result as text; None without a result."""
        with self._connection(spark) as connection:
            found = connection.createStatement().executeQuery(query)
            return str(found.getString(1)) if found.next() else None

    def _exists(self, spark: SparkSession, table: str) -> bool:
        """Return whether the table can be read, which is also Spark's test for existence."""
        try:
            with self._connection(spark) as connection:
                query = self._dialect(spark).getTableExistsQuery(table)
                connection.createStatement().executeQuery(query)
        except Py4JJavaError:
            return False
        return True


def table_statements(
    table: str, staging: str, keys: Sequence[str], quoted: Callable[[str], str]
) -> list[str]:
    """Return PostgreSQL's statements that make a table of changes, with an index on its key.

    Args:
        table: The table.
        staging: A staging table of its rows.
        keys: The columns of the key.
        quoted: Quotes a name.
    """
    return [
        f"CREATE TABLE {table} (LIKE {staging})",
        f"ALTER TABLE {table} DROP COLUMN {quoted(_ROW)}, DROP COLUMN {quoted(_COPY)}",
        _index_statement(table, keys, quoted),
    ]


def _index_statement(table: str, keys: Sequence[str], quoted: Callable[[str], str]) -> str:
    return f"CREATE UNIQUE INDEX ON {table} ({', '.join(map(quoted, keys))})"


def merge_statement(
    table: str,
    staging: str,
    names: Sequence[str],
    columns: MergeColumns,
    quoted: Callable[[str], str],
) -> str:
    """Return PostgreSQL's statement that puts staged changes into a table.

    Args:
        table: The table, with a unique index on the key.
        staging: The table of the changes. It may have several of a key, and one several times.
        names: The columns of both.
        columns: Those by which changes are matched and compared.
        quoted: Quotes a name.
    """
    keys = ", ".join(quoted(name) for name in columns.keys)
    listed = ", ".join(quoted(name) for name in names)
    newest_first = ", ".join(f"{one} DESC NULLS LAST" for one in _order(columns, "s", quoted))
    others = [quoted(name) for name in names if name not in columns.keys]
    return (
        f"INSERT INTO {table} AS t ({listed}) "
        f"SELECT DISTINCT ON ({keys}) {listed} FROM {staging} s ORDER BY {keys}, {newest_first} "
        f"ON CONFLICT ({keys}) DO UPDATE SET "
        + ", ".join(f"{one} = EXCLUDED.{one}" for one in others)
        + f" WHERE {_is_newer(columns, quoted)}"
    )


def _order(columns: MergeColumns, place: str, quoted: Callable[[str], str]) -> list[str]:
    """Return the values by which changes are compared.

    Texts are compared by their bytes. Message ids are digits, so the longer one is greater.
    """
    values = [
        f'{place}.{quoted(name)} COLLATE "C"'
        if name in columns.texts
        else f"{place}.{quoted(name)}"
        for name in columns.order
    ]
    values.insert(-1, f"length({place}.{quoted(columns.order[-1])})")
    return values


def _is_newer(columns: MergeColumns, quoted: Callable[[str], str]) -> str:
    """Return the condition that a change is newer than the row. Null is older than any value."""
    condition = "false"
    pairs = zip(_order(columns, "EXCLUDED", quoted), _order(columns, "t", quoted), strict=True)
    for change, row in reversed(list(pairs)):
        condition = (
            f"({change} > {row} OR ({change} IS NOT NULL AND {row} IS NULL) "
            f"OR ({change} IS NOT DISTINCT FROM {row} AND {condition}))"
        )
    return condition


class StagedRows:
    """The rows of a batch in their staging table.

    Args:
        target: The target.
        rows: The rows.
        batch: Name of the batch.
        table: Name of the staging table.
    """

    def __init__(self, target: JdbcTarget, rows: DataFrame, batch: BatchName, table: str) -> None:
        self._target = target
        self._columns = rows.columns
        self._spark = rows.sparkSession
        self._batch = batch
        self.table = table

    @property
    def rows(self) -> int:
        """Number of the rows in the staging table, each counted once."""
        return self._target.staged(self._spark, self.table)

    def commit(self) -> bool:
        """Copy the rows to the table, unless it has the batch."""
        committed = self._target.take_in(self._spark, self._columns, self.table, self._batch)
        self._target.drop(self._spark, self.table)
        return committed


def _flat(rows: DataFrame, name: str) -> Column:
    column = rows[name]
    if isinstance(rows.schema[name].dataType, _NESTED):
        return F.to_json(column).alias(name)
    return column
