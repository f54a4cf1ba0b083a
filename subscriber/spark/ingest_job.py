"""What an ingestion job is told: from where, to where, and in which form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .jdbc_target import JdbcTarget
from .place import folder_here, overlap
from .targets import FILE_FORMATS, FORMATS, DeltaTarget, FileTarget, Target

DECODINGS = ("json",)

# What is put behind a table's name for the records that do not decode.
BAD = "deadletter"

_JDBC = "jdbc:"
_STATE = "_state"

# Options of the source that are not the user's to choose, and who chooses.
_FIXED = {
    "spooldir": "the spool is in the folder `state`",
    "subscription": "it is an argument of the job",
}


@dataclass(frozen=True, kw_only=True)
class IngestJob:
    """A subscription's messages into a table, each once. Checked when made.

    Args:
        subscription: `projects/P/subscriptions/S`, or `S` with the option `project`.
        to: where the table is: a folder that Spark can write to, or the URL of a database,
            `jdbc:...`, whose user and password come from PULLSTREAM_JDBC_USER and _PASSWORD.
        format: "parquet", "json", "delta" or "jdbc". Default: "jdbc" for such a URL, else
            "parquet".
        table: the table in the database.
        available_now: end when all that was there has been written.
        every: seconds from the beginning of a batch to that of the next. Default: at once.
        partition_by: columns whose values become folders; also `publish_date`, `publish_hour`.
        decode: "json" to make columns of each message's fields, by `schema`: column definitions
            such as `id BIGINT NOT NULL, name STRING`. Default: messages as they are.
        bad_to: where messages go that do not decode: not into the table, nor into a folder that is
            in it or has it. Default: beside the table, with `-deadletter` (in a database
            `_deadletter`) behind its name.
        state: a folder on the driver's disk for what the job must find again when it goes on.
            Default: `_state` in the folder `to`, if that is on this machine.
        options: further options of the source; docs/spark.md has them. `subscription` and
            `spoolDir` are not among them, as the job has them already.

    Raises:
        ValueError: an argument is not of its form, or does not go with another.
    """

    subscription: str
    to: str
    format: str = ""
    table: str | None = None
    available_now: bool = False
    every: float | None = None
    partition_by: tuple[str, ...] = ()
    decode: str | None = None
    schema: str | None = None
    bad_to: str | None = None
    state: Path | str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_database = self.to.startswith(_JDBC)
        if not self.format:
            object.__setattr__(self, "format", "jdbc" if is_database else FILE_FORMATS[0])
        if self.format not in FORMATS:
            raise ValueError(f"format is {self.format!r}; it must be one of {', '.join(FORMATS)}")
        if is_database != (self.format == "jdbc"):
            raise ValueError(
                f"to is {self.to!r} and format {self.format!r}: with the format jdbc, and no "
                "other, to is the URL of a database, jdbc:..."
            )
        if is_database and not self.table:
            raise ValueError("table is missing: the name of the table in the database")
        if self.table and not is_database:
            raise ValueError(f"table is {self.table!r}, which only the format jdbc has")
        if is_database and self.partition_by:
            raise ValueError("partition_by is for folders: a table in a database has none")
        self._check_form()
        self._check_decoding()
        # A name may be too long for a table.
        self.target(), self.bad_target()
        for name in self.options:
            if name.lower() in _FIXED:
                raise ValueError(f"options has {name!r}, and must not: {_FIXED[name.lower()]}")

    def _check_form(self) -> None:
        if self.available_now and self.every is not None:
            raise ValueError("give either available_now or every: one ends, the other goes on")
        if self.every is not None and not 0 < self.every < float("inf"):
            raise ValueError(f"every is {self.every!r}; it must be above 0 seconds")
        if self.state is None and folder_here(self.to) is None:
            raise ValueError(
                f"state is missing: with to on another machine ({self.to.partition(':')[0]}), name "
                "a folder on the driver's disk, which outlives it"
            )

    def _check_decoding(self) -> None:
        if self.decode not in (None, *DECODINGS):
            raise ValueError(f"decode is {self.decode!r}; it must be {' or '.join(DECODINGS)}")
        if (self.decode is None) != (self.schema is None):
            raise ValueError(
                "decode and schema go together: decode='json', schema='id BIGINT, name STRING'"
            )
        if self.bad_to is not None and self.decode is None:
            raise ValueError("bad_to is for what does not decode: it needs decode and schema")
        self._check_bad_to()

    def _check_bad_to(self) -> None:
        """In one place the bad rows of a batch would take that of the good."""
        if not self.bad_to:
            return
        if self.table is None:
            if overlap(self.to, self.bad_to):
                raise ValueError(
                    f"bad_to is {self.bad_to!r}, and to is {self.to!r}; they must be two folders, "
                    "neither of which is in the other"
                )
        elif not JdbcTarget(self.to, self.table).is_apart_from(JdbcTarget(self.to, self.bad_to)):
            raise ValueError(
                f"bad_to is {self.bad_to!r}, and table is {self.table!r}; they must be two tables, "
                "neither of which is that of the other's batches"
            )

    @property
    def state_folder(self) -> Path:
        if self.state is not None:
            return Path(self.state)
        folder = folder_here(self.to)
        # Checked when made.
        assert folder is not None
        return folder / _STATE

    @property
    def identity(self) -> dict[str, str]:
        """What must not change while the state is kept."""
        return {
            "subscription": self.subscription,
            "to": self._table,
            "format": self.format,
            # Folders of two depths in one table are of no use to readers.
            "partition_by": ", ".join(self.partition_by),
        }

    @property
    def reading(self) -> dict[str, str]:
        """What must not change between a batch and the same batch once more."""
        return {"decode": self.decode or "", "schema": self.schema or ""}

    def target(self) -> Target:
        """The table."""
        if self.table is not None:
            return JdbcTarget(self.to, self.table)
        return self._in_folder(self.to, self.partition_by)

    def bad_target(self) -> Target | None:
        """The table beside it; None where every message decodes."""
        if self.decode is None:
            return None
        if self.table is not None:
            return JdbcTarget(self.to, self.bad_to or f"{self.table}_{BAD}")
        return self._in_folder(self.bad_to or f"{self.to.rstrip('/')}-{BAD}", ())

    def _in_folder(self, path: str, partition_by: tuple[str, ...]) -> Target:
        if self.format == "delta":
            return DeltaTarget(path, partition_by)
        return FileTarget(path, self.format, partition_by)

    @property
    def _table(self) -> str:
        """`to` in one form, of the several that a folder has."""
        if self.table is not None:
            # As it is told, for it is written to disk: the URL of a database may hold a password.
            return self.target().place
        return str(folder_here(self.to) or self.to.rstrip("/"))
