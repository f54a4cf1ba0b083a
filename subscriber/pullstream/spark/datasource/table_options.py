"""Options of `CREATE TABLE ... USING pubsub OPTIONS (...)`.

Spark (4.3) passes the options to the source when the table is created, and never again. At each
read it passes the schema that the catalog has stored. The source returns that schema when the table
is created, with the options in the metadata of a column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructField, StructType

# The key of the options in the metadata of the first column.
METADATA = "pullstream.options"

# Spark passes the properties of the table, of which one has the name of the source. Those with this
# prefix are the options.
_PROVIDER = "provider"
_PREFIX = "option."


def given_to_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of CREATE TABLE; None: no table is created.

    Raises:
        ValueError: The catalog would store a token.
    """
    if _PROVIDER not in options:
        return None
    given = {
        name.removeprefix(_PREFIX): text
        for name, text in options.items()
        if name.startswith(_PREFIX)
    }
    if "token" in given:
        raise ValueError(
            "option 'token' is not allowed for a table, whose options are stored in the catalog; "
            "use 'tokenFile', or PULLSTREAM_TOKEN"
        )
    return given


def with_options(columns: StructType, options: Mapping[str, str]) -> StructType:
    """Return the columns of a table that has these options."""
    first, *others = columns
    metadata = {METADATA: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def read_options_of(schema: StructType, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a read: the options of the table, replaced by options of the read.

    Args:
        schema: The columns of the read.
        options: The options that Spark passes, which count more.

    Raises:
        ValueError: No option reaches the source, because the table has a list of columns.
    """
    stored = schema[0].metadata.get(METADATA) if len(schema) else None
    if stored is None and not options:
        raise ValueError(
            "no option reaches the source: Spark loses the OPTIONS of a CREATE TABLE with a list "
            "of columns. Drop the table and create it without the list, or read it by "
            "SELECT ... FROM table WITH (subscription = '...', spoolDir = '...')"
        )
    of_table = {} if stored is None else json.loads(stored)
    return {**of_table, **{name.lower(): text for name, text in options.items()}}
