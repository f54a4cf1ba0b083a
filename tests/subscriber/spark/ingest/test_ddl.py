"""Column definitions that are read without Spark, compared with Spark's reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pullstream.spark.ingest.ddl import columns_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GOOD = [
    "id BIGINT NOT NULL, tags ARRAY<STRING>",
    "a: int, `b c` struct<x: INT NOT NULL, `y.z` MAP<STRING, DECIMAL(12, 3)>>, c dec",
    "a TINYINT, b BYTE, c SMALLINT, d SHORT, e INTEGER, f LONG, g FLOAT, h REAL, i DOUBLE",
    "a BOOLEAN, b BINARY, c DATE, d TIMESTAMP, e TIMESTAMP_NTZ, f NUMERIC(7), g DECIMAL(38,38)",
    "array ARRAY<ARRAY<STRUCT<a INT, b STRING>>>, `a``b` INT\n,\tdate DATE ",
]
OTHERS = [
    *("", "id", "id BIGINTT", "id INT,", ",", "id INT x", "id INT NOT", "a INT b INT", "a ARRAY"),
    *("a ARRAY<INT", "a ARRAY<INT>>", "a DECIMAL(39)", "a DECIMAL(5,6)", "a DECIMAL(0)", "1 INT"),
    *("a STRUCT<>", "a MAP<INT>", "a INT NULL", "a VARCHAR(5)", "a INT COMMENT 'x'", "a-b INT"),
    *("`a INT", "a INTERVAL DAY", "a INT DEFAULT 5", "é INT", "a VARIANT", "-- x\na INT"),
]


@pytest.mark.parametrize("ddl", GOOD)
def test_column_definitions_are_read_without_spark_as_spark_reads_them(
    spark: SparkSession, ddl: str
) -> None:
    """Early errors are about the same columns as later ones."""
    assert columns_of(ddl) == StructType.fromDDL(ddl)


@pytest.mark.parametrize("ddl", OTHERS)
def test_column_definitions_of_another_form_are_left_to_spark(ddl: str) -> None:
    """They are wrong, or rare."""
    assert columns_of(ddl) is None


NAMES = st.sampled_from(["a", "b_1", "`c d`", "array", "date", "null", "comment", "int", "Key"])
TYPES = st.recursive(
    st.sampled_from(["INT", "string", "timestamp", "DECIMAL", "decimal(7, 3)", "dec(1)"]),
    lambda kinds: st.one_of(
        kinds.map(lambda kind: f"ARRAY<{kind}>"),
        st.tuples(kinds, kinds).map(lambda two: f"map< {two[0]},{two[1]} >"),
        st.tuples(NAMES, kinds, NAMES, kinds).map(lambda of: "struct<{}: {}, {} {}>".format(*of)),
    ),
    max_leaves=4,
)
COLUMNS = st.tuples(NAMES, st.sampled_from([" ", ": "]), TYPES, st.sampled_from(["", " not NULL"]))
WORDS = st.sampled_from(["", "NOT", "NULL", "COMMENT", *",<>():7`'x"])


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    columns=st.lists(COLUMNS.map("".join), min_size=1, max_size=3),
    word=WORDS,
    at=st.integers(0, 60),
)
def test_no_text_is_read_without_spark_that_spark_reads_differently(
    spark: SparkSession, columns: list[str], word: str, at: int
) -> None:
    """A table with other columns could be created. Some texts are spoilt by a word."""
    ddl = ", ".join(columns)
    ddl = f"{ddl[:at]} {word} {ddl[at:]}" if word else ddl
    early = columns_of(ddl)
    if early is None:
        return
    try:
        assert StructType.fromDDL(ddl) == early
    except PySparkException as error:
        raise AssertionError(f"Spark refuses {ddl!r}") from error
