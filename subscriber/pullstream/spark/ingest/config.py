"""Configuration of an ingestion job: its source, its target and its form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import unquote, urlparse
from zoneinfo import ZoneInfo

from pullstream.runtime.validation import require_positive
from pullstream.spark.datasource.options import NOTES, PROOF, SECRET
from pullstream.spark.receiver_processes.options import with_defaults
from pullstream.spark.spool_store import spool_store
from pullstream.spark.stores import Bucket, LocalFolder, scheme_of
from pullstream.spark.tables.file_table import FileTable
from pullstream.spark.tables.merge import MergeColumns
from pullstream.spark.tables.partitions import PartitionExpression, partition_fields
from pullstream.spark.tables.table import MergingTable

from .changes import Changes, merge_columns
from .ddl import columns_of
from .decoding import PREFIX, Decoding, JsonDecoding, TextDecoding, Undecoded
from .jdbc_target import POSTGRESQL, JdbcTarget
from .merging_target import MergingTarget
from .state import SPOOL_PLACE, spool_in
from .targets import FILE_FORMATS, FORMATS, LAKE_FORMATS, TableTarget, Target

if TYPE_CHECKING:
    import pyarrow as pa

DECODINGS = ("json", "text")

# Suffix of a table's name for records that cannot be decoded.
BAD = "deadletter"

_JDBC = "jdbc:"
_JDBC_FORMAT = "jdbc"
_ICEBERG = "iceberg"
_STATE = "_state"

# Other names, such as localtime, have another meaning in Java or none.
_REGION = re.compile(r"(?:Africa|America|Asia|Atlantic|Australia|Europe|Indian|Pacific)/[\w/-]+")
_OFFSET = re.compile(r"[+-](?:0\d|1[0-7]):[0-5]\d", re.ASCII)

_LONGEST_RANGE = 10_000 * 365.25 * 86_400

# The beginnings of the names that are settings of one kind of object store.
_STORAGE_NAMES = {"s3": ("aws_",), "gs": ("google_",), "az": ("azure_",)}

# Options of the source that the user may not set, with the reason.
_FIXED = {
    "spooldir": "it is the argument `spool` of the job",
    "subscription": "it is an argument of the job",
}


@dataclass(frozen=True, kw_only=True)
class IngestJob:
    """Job that writes the messages of a subscription to a table, each once.

    The values are checked when the object is created.

    Attributes:
        subscription: `projects/P/subscriptions/S`, or `S` together with the option `project`.
        to: Location of the table: a folder that driver and executors see, the URL of an object
            store (`s3://`, `gs://`, `az://`), or the URL of a database, `jdbc:...`. User and
            password of a database come from the environment variables PULLSTREAM_JDBC_USER and
            PULLSTREAM_JDBC_PASSWORD.
        format: "parquet", "json", "delta", "iceberg" or "jdbc". Default: "jdbc" for a `jdbc:` URL,
            otherwise "parquet".
        table: Name of the table in the database, or in the Iceberg catalog (`namespace.name`).
            Default for Iceberg: the last part of `to`, in the namespace `default`.
        catalog: Properties of the Iceberg catalog, such as `type` and `uri`; see pyiceberg's
            documentation. Default: a SQLite file `catalog.db` beside a folder on this machine.
        evolve: "add" lets the job add columns to a Delta or Iceberg table, and widen types of an
            Iceberg table (INT to BIGINT, FLOAT to DOUBLE). Default: other columns are refused.
        storage: Settings of the object stores of `to` and `spool`, such as `aws_region`; see
            obstore's documentation. Default: the environment of each machine.
        available_now: End when all messages that were in the subscription at the start are written.
        every: Seconds from the start of a batch to the start of the next. Default: no pause.
        partition_by: What divides the rows into folders: columns, `day(COLUMN)`, `hour(COLUMN)`
            (both in UTC), and for Iceberg `bucket(NUMBER, COLUMN)`.
        merge_on: Columns of a key. The messages are changes of rows, and the table keeps the newest
            change of each key. Only for Delta, Iceberg and PostgreSQL.
        latest_by: The column that tells which of two changes of a key is newer, or "publish_time".
            Changes that are equal in it are compared by publish time, then by message id. Null is
            older than any value. Default: the publish time.
        delete_when: SQL condition on the columns, such as `op = 'D'`, that a change deletes its
            row. The row stays, with true in the column `_deleted`, so that an older change that
            comes late does not revive it.
        decode: "json" makes columns from the fields of each message, according to `schema`. "text"
            makes one column `text` from the data. In both cases the message's own columns and the
            batch follow: `pubsub_message_id`, `pubsub_publish_time`, ..., `pubsub_batch`. Default:
            messages are written with the columns of the source.
        schema: Column definitions, such as `id BIGINT NOT NULL, name STRING`. For "json" only.
        time_zone: Zone of times in messages that have no zone: a name, or an offset such as +02:00.
            Spark's zone has no effect. For "json" only.
        event_range: Largest distance between a message's publish time and the times by which
            `partition_by` divides rows, in seconds. Messages with other times are bad. Default: any
            distance. For "json" only.
        metadata: Whether decoded tables have the columns `pubsub_...`. The table of bad messages
            has them in any case.
        bad_to: Location of messages that cannot be decoded. It must not be the table, nor a folder
            inside or around it. Default: `to` with the suffix `-deadletter`, or in a database the
            table's name with `_deadletter`.
        state: Folder on the driver's disk for the data with which a restarted job continues.
            Default: `_state` in the folder `to`, if that is on this machine.
        spool: Folder of the messages of unfinished batches, or its URL in an object store
            (`s3://`, `gs://`, `az://`). Default: `spool` in the folder `state`.
        receivers: Number of receivers that run as tasks of Spark. Each one needs a core, and the
            query one more. Default: one receiver in the process of the source.
        options: Further options of the source, described in docs/spark.md, except `subscription`
            and `spoolDir`, which the job sets. `receivers` is `outside` with programs of
            `pullstream receive`.

    Raises:
        ValueError: A value is invalid, or excludes another one.
    """

    subscription: str
    to: str
    format: str = ""
    table: str | None = None
    available_now: bool = False
    every: float | None = None
    partition_by: tuple[str, ...] = ()
    merge_on: tuple[str, ...] = ()
    latest_by: str | None = None
    delete_when: str | None = None
    decode: str | None = None
    schema: str | None = None
    time_zone: str = "UTC"
    event_range: float | None = None
    metadata: bool = True
    bad_to: str | None = None
    state: Path | str | None = None
    spool: str | None = None
    receivers: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    catalog: Mapping[str, str] | None = field(default=None, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    evolve: str | None = None

    def __post_init__(self) -> None:
        is_database = self.to.startswith(_JDBC)
        if not self.format:
            object.__setattr__(self, "format", "jdbc" if is_database else FILE_FORMATS[0])
        if self.format not in FORMATS:
            raise ValueError(f"format is {self.format!r}; it must be one of {', '.join(FORMATS)}")
        if is_database != (self.format == "jdbc"):
            raise ValueError(
                f"to is {self.to!r} and format is {self.format!r}; to must be the URL of a "
                "database, jdbc:..., for the format jdbc, and only for it"
            )
        if is_database and not self.table:
            raise ValueError("table is missing; it must be the name of a table in the database")
        if self.table and not (is_database or self.format == _ICEBERG):
            raise ValueError(
                f"table is {self.table!r}, but only the formats jdbc and iceberg have a table"
            )
        if self.receivers is not None:
            require_positive("receivers", self.receivers)
        self._check_lake()
        self._check_partitions(is_database)
        self._check_form()
        self._check_decoding()
        self._check_merge()
        if is_database:
            # Creating the targets checks the length of the table names.
            self._jdbc(self.table)
            if self.decode is not None:
                self._jdbc(self._bad_table)
        for name in self.options:
            if name.lower() in _FIXED:
                raise ValueError(f"option {name!r} is not allowed: {_FIXED[name.lower()]}")
            if name.lower() == "receivers" and self.receivers is not None:
                raise ValueError(
                    "receivers and the option 'receivers' exclude each other: the first starts "
                    "receivers as tasks, and with 'outside' the second expects other programs"
                )

    @property
    def modules_of_tasks(self) -> list[str]:
        """The modules that the tasks of this job import."""
        buckets = any(one.transform == "bucket" for one in self.expressions)
        in_store = self.format != _JDBC_FORMAT and _folder_here(self.to) is None
        return [
            "pyarrow",
            *(["obstore"] if in_store or scheme_of(self.spool or "") in _STORAGE_NAMES else []),
            *(["pyiceberg"] if buckets else []),
            *(["pullstream", "grpc"] if self.receivers is not None else []),
        ]

    def spool_store(self) -> LocalFolder | Bucket:
        """Return the spool.

        Raises:
            ValueError: The URL or a setting of the store cannot be used.
        """
        if self.spool is None:
            return spool_in(self.state_folder)
        return spool_store(self.spool, self.storage_of(self.spool), "spool")

    def storage_of(self, place: str) -> dict[str, str]:
        """Return the settings of the store of a place, of which another place may have others."""
        kind = scheme_of(place)
        if kind not in _STORAGE_NAMES:
            return {}
        kinds = {scheme_of(one) for one in (self.to, self.spool or "")} - {kind}
        others = tuple(name for one in kinds for name in _STORAGE_NAMES.get(one or "", ()))
        return {name: text for name, text in self.storage.items() if not name.startswith(others)}

    def source_options(self) -> dict[str, str]:
        """Return the options of the source, which the receivers share."""
        spool = self.spool or str(spool_in(self.state_folder).folder)
        storage = {f"{SECRET}{name}": text for name, text in self.storage_of(spool).items()}
        given = {**self.options, **storage, "subscription": self.subscription, "spoolDir": spool}
        if storage or isinstance(self.spool_store(), Bucket):
            given[NOTES] = str(self.state_folder.absolute())
        given[PROOF] = "table"
        return given if self.receivers is None else {**with_defaults(given), "receivers": "outside"}

    def _check_lake(self) -> None:
        if self.evolve not in (None, "add"):
            raise ValueError(f"evolve is {self.evolve!r}; it must be 'add'")
        if self.evolve is not None and self.format not in LAKE_FORMATS:
            raise ValueError(
                f"evolve is given, but format is {self.format!r}; only the tables of "
                f"{' and '.join(LAKE_FORMATS)} know their columns"
            )
        if self.catalog is not None and self.format != _ICEBERG:
            raise ValueError(
                f"catalog is given, but format is {self.format!r}; only Iceberg has a catalog"
            )
        if self.format == _ICEBERG and self.catalog is None and _folder_here(self.to) is None:
            raise ValueError(
                f"catalog is missing; an Iceberg table in {self.to!r} needs one, such as "
                "catalog={'type': 'rest', 'uri': 'https://...'}; only a folder on this machine has "
                "a default, a SQLite file beside it"
            )
        if self.spool is not None:
            self.spool_store()
        is_used = {scheme_of(self.to), scheme_of(self.spool or "")} & _STORAGE_NAMES.keys()
        if self.storage and not is_used:
            spool = "" if self.spool is None else f", and spool is {self.spool!r}"
            raise ValueError(
                f"storage is given, but to is {self.to!r}, a folder{spool}; only the URL of an "
                "object store (s3://, gs://, az://) has settings"
            )

    def _check_partitions(self, is_database: bool) -> None:
        if is_database and self.partition_by:
            raise ValueError("partition_by is only for folders, not for tables in a database")
        for one in self.expressions:
            if one.transform == "bucket" and self.format != _ICEBERG:
                raise ValueError(
                    f"partition_by has {str(one)!r}, but format is {self.format!r}; only Iceberg "
                    "has buckets"
                )

    def _check_form(self) -> None:
        if self.available_now and self.every is not None:
            raise ValueError(
                "`available_now` and `every` exclude each other; give only one of them"
            )
        if self.every is not None and not 0 < self.every < float("inf"):
            raise ValueError(f"every is {self.every!r}; it must be more than 0 seconds")
        if self.state is None and _folder_here(self.to) is None:
            raise ValueError(
                f"state is missing; if to is not a local folder ({self.to.partition(':')[0]}), it "
                "must be a folder on the driver's disk that outlives the driver"
            )

    def _check_decoding(self) -> None:
        if self.decode not in (None, *DECODINGS):
            raise ValueError(f"decode is {self.decode!r}; it must be {' or '.join(DECODINGS)}")
        if self.decode == "text" and self.schema is not None:
            raise ValueError(
                "schema is given, but decode is 'text', which makes the one column text; leave "
                "`schema` out, or give decode='json'"
            )
        if self.decode != "text" and (self.decode is None) != (self.schema is None):
            raise ValueError(
                "`decode` and `schema` go together: give decode='json' and "
                "schema='id BIGINT, name STRING'"
            )
        if self.bad_to is not None and self.decode is None:
            raise ValueError("bad_to is only used together with `decode`; give that too")
        if not self.metadata and self.decode is None:
            raise ValueError(
                "metadata is False, but decode is missing; without decoding, a row is the message "
                "itself. Give decode='json' or decode='text'"
            )
        if self.time_zone != "UTC" and self.decode != "json":
            raise ValueError(
                f"time_zone is {self.time_zone!r}, but only decode='json' reads times; leave it out"
            )
        self._check_event_range()
        self._check_bad_to()

    def _check_merge(self) -> None:
        if not self.merge_on:
            for name in ("latest_by", "delete_when"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is only used together with merge_on; give it too")
            return
        if not (self.format in LAKE_FORMATS or self.to.startswith(POSTGRESQL)):
            raise ValueError(
                f"merge_on is given, but format is {self.format!r} and to is {self._table!r}; only "
                "the formats delta and iceberg and the database PostgreSQL take changes of rows"
            )
        if self.schema is None:
            raise ValueError(
                "merge_on is given, but decode is missing; the key is made of columns of the data: "
                "give decode='json' and `schema`"
            )
        if not self.metadata:
            raise ValueError(
                "merge_on is given, and metadata is False; of two changes that are equal in "
                "latest_by, the newer one is found by publish time and message id, which are "
                "metadata"
            )
        for name in self.merge_on:
            if self.merge_on.count(name) > 1:
                raise ValueError(f"merge_on has {name!r} more than once; remove all but one")

    def _check_event_range(self) -> None:
        if self.event_range is None:
            return
        # Longer ones exceed Spark's microseconds, and are no limit.
        if not 0 < self.event_range <= _LONGEST_RANGE:
            raise ValueError(
                f"event_range is {self.event_range!r}; it must be more than 0 seconds, and at most "
                "10,000 years"
            )
        if self.decode != "json" or not self._event_columns:
            raise ValueError(
                "event_range is the distance of partition_by's times from the publish time; it "
                "needs decode='json', and day(COLUMN) or hour(COLUMN) in partition_by, with a "
                "column of the schema"
            )

    def _check_bad_to(self) -> None:
        """Check that good and bad rows have separate locations.

        Otherwise the bad rows of a batch would replace the good ones.
        """
        if not self.bad_to:
            return
        if self.format != _JDBC_FORMAT:
            if _overlap(self.to, self.bad_to):
                raise ValueError(
                    f"bad_to is {self.bad_to!r} and to is {self.to!r}; they must be different "
                    "folders, and neither may be inside the other"
                )
        elif not self._jdbc(self.table).is_apart_from(self._jdbc(self.bad_to)):
            raise ValueError(
                f"bad_to is {self.bad_to!r} and table is {self.table!r}; they must be different "
                "tables, and neither may be the table of batches of the other"
            )

    @property
    def state_folder(self) -> Path:
        """The given `state`, or by default the folder `_state` in `to`."""
        if self.state is not None:
            return Path(self.state)
        folder = _folder_here(self.to)
        # Checked when the object was created.
        assert folder is not None
        return folder / _STATE

    @property
    def identity(self) -> dict[str, str]:
        """Values that must not change as long as the state is used."""
        return {
            "subscription": self.subscription,
            "to": self._table,
            "format": self.format,
            # A table with partition folders of different depths is useless to readers.
            "partition_by": ", ".join(self.partition_by),
            # Rows that were written in another order would be replaced wrongly.
            "merge_on": ", ".join(self.merge_on),
            "latest_by": self.latest_by or "",
            SPOOL_PLACE: self.spool or "",
        }

    @property
    def reading(self) -> dict[str, str]:
        """Values that must not change between a batch and its replay."""
        return {
            "decode": self.decode or "",
            "schema": self.schema or "",
            "time_zone": self.time_zone,
            "event_range": "" if self.event_range is None else f"{self.event_range} s",
        }

    @property
    def expressions(self) -> tuple[PartitionExpression, ...]:
        """The parsed `partition_by`."""
        return tuple(map(PartitionExpression.parse, self.partition_by))

    def decoding(self) -> Decoding:
        """Return the decoding of the messages. Needs a Spark session.

        Raises:
            ValueError: `schema` is not a schema, or `time_zone` is unknown.
        """
        if self.schema is None:
            return self._plain_decoding
        return self._json_decoding(JsonDecoding.from_ddl(self.schema, **self._form))

    def early_decoding(self) -> Decoding | None:
        """Return the decoding without Spark; None if only Spark can read `schema` or `time_zone`.

        Raises:
            ValueError: A column name in `schema` is reserved or repeated.
        """
        if self.schema is None:
            return self._plain_decoding
        schema = columns_of(self.schema)
        if schema is None or not _is_zone(self.time_zone):
            return None
        return self._json_decoding(JsonDecoding.of(schema, **self._form))

    @property
    def _plain_decoding(self) -> Decoding:
        return Undecoded() if self.decode is None else TextDecoding(self.metadata)

    @property
    def _form(self) -> _Form:
        return {
            "time_zone": self.time_zone,
            "metadata": self.metadata,
            "event_range": self.event_range,
            "event_columns": self._event_columns,
        }

    def _json_decoding(self, decoding: JsonDecoding) -> Decoding:
        return Changes.of(decoding, self.merge_on, self.delete_when) if self.merge_on else decoding

    def target(self, schema: pa.Schema) -> Target:
        """Return the table for rows with these columns.

        Raises:
            ValueError: `partition_by`, `merge_on` or `latest_by` does not fit the columns.
        """
        columns = merge_columns(self.merge_on, self.latest_by, schema) if self.merge_on else None
        if self.format == _JDBC_FORMAT:
            return replace(self._jdbc(self.table), columns=columns)
        return self._in_folder(self.to, self.table, schema, self.expressions, columns)

    def bad_target(self, schema: pa.Schema) -> Target | None:
        """Return the table of messages that cannot be decoded, or None without decoding."""
        if self.decode is None:
            return None
        if self.format == _JDBC_FORMAT:
            return self._jdbc(self._bad_table)
        name = None if self.table is None else f"{self.table}_{BAD}"
        return self._in_folder(self._bad_folder, name, schema, ())

    @property
    def folders(self) -> tuple[str, ...]:
        """Paths or URLs of the tables, good and bad; none in a database."""
        if self.format == _JDBC_FORMAT:
            return ()
        return (self.to,) if self.decode is None else (self.to, self._bad_folder)

    @property
    def _bad_folder(self) -> str:
        return self.bad_to or f"{self.to.rstrip('/')}-{BAD}"

    @property
    def _event_columns(self) -> tuple[str, ...]:
        """Columns by whose time the rows are divided, without those of the message itself."""
        return tuple(
            one.column
            for one in self.expressions
            if one.transform in ("day", "hour") and not one.column.lower().startswith(PREFIX)
        )

    def _jdbc(self, table: str | None) -> JdbcTarget:
        assert table is not None, "checked when the object was created"
        return JdbcTarget(self.to, table)

    @property
    def _bad_table(self) -> str:
        return self.bad_to or f"{self.table}_{BAD}"

    def _in_folder(
        self,
        path: str,
        name: str | None,
        schema: pa.Schema,
        expressions: Sequence[PartitionExpression],
        columns: MergeColumns | None = None,
    ) -> Target:
        fields = partition_fields(expressions, schema)
        may_add = self.evolve is not None
        match self.format:
            case "delta":
                from pullstream.spark.tables.delta import DeltaLakeTable

                table: MergingTable = DeltaLakeTable(
                    path, fields, self.storage_of(path), may_add=may_add
                )
            case "iceberg":
                from pullstream.spark.tables.iceberg import IcebergTable

                table = IcebergTable(
                    path, fields, self.storage_of(path), self.catalog, name, may_add=may_add
                )
            case "json":
                return TableTarget(
                    FileTable(path, fields, self.storage_of(path), is_json=True), fields
                )
            case _:
                return TableTarget(FileTable(path, fields, self.storage_of(path)))
        return TableTarget(table) if columns is None else MergingTarget(table, columns)

    @property
    def place(self) -> str:
        """Description of the table for users, without secrets."""
        return self._jdbc(self.table).place if self.format == _JDBC_FORMAT else self.to

    @property
    def _table(self) -> str:
        """The location of the table in one normal form."""
        if self.format == _JDBC_FORMAT:
            # Written to disk, so without secrets: the URL of a database may contain a password.
            return self._jdbc(self.table).place
        return str(_folder_here(self.to) or self.to.rstrip("/"))


def _is_region(text: str) -> bool:
    if not _REGION.fullmatch(text):
        return False
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        return False
    return True


class _Form(TypedDict):
    """The arguments of a JsonDecoding, without its schema."""

    time_zone: str
    metadata: bool
    event_range: float | None
    event_columns: tuple[str, ...]


def _is_zone(text: str) -> bool:
    """Return whether this is a time zone without doubt. Spark knows each of these, and more."""
    return text == "UTC" or bool(_OFFSET.fullmatch(text)) or _is_region(text)


def _folder_here(path: str) -> Path | None:
    """Return `path` as a local path, or None if it is a URL of another file system."""
    if path.startswith("file:"):
        return Path(unquote(urlparse(path).path))
    return None if ":" in path.partition("/")[0] else Path(path)


def _overlap(one: str, other: str) -> bool:
    """Return whether two folders are the same, or one is inside the other."""
    first, second = _normal(one), _normal(other)
    return first.is_relative_to(second) or second.is_relative_to(first)


def _normal(path: str) -> PurePath:
    """Return a folder in normal form, so that two spellings of it are equal."""
    folder = _folder_here(path)
    return PurePosixPath(normpath(path)) if folder is None else folder.resolve()
