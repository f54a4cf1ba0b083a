"""Options of the source: their Spark names, and the settings that they set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pullstream.runtime.field_names import with_names
from pullstream.spark.option_parsing import (
    COUNT,
    DURATION,
    FLAG,
    MILLISECONDS,
    SECONDS,
    SIZE,
    TEXT,
    TOKEN_FILE,
    Kind,
    choice,
    one_of,
    read_options,
)
from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.settings import IngestSettings, Receivers
from pullstream.spark.stores import LocalFolder

# Defaults of a batch read, which is one long batch.
DEFAULT_MAX_MESSAGES = 100_000
DEFAULT_MAX_BYTES = 256 * 2**20
DEFAULT_MAX_SECONDS = 60.0
# Leases of a batch read are not extended while the job processes the rows, so they have the maximum
# length.
BATCH_LEASE_SECONDS = 600

_ACKNOWLEDGE = one_of(Acknowledge)
_RECEIVERS = one_of(Receivers)

# Option name to its kind and the field of IngestSettings that it sets.
_SOURCE: dict[str, tuple[Kind, str]] = {
    "subscription": (TEXT, "subscription"),
    "project": (TEXT, "project"),
    "endpoint": (TEXT, "endpoint"),
    "token": (TEXT, "token"),
    "tokenFile": (TOKEN_FILE, "token"),
    "ca": (TEXT, "ca"),
    "cert": (TEXT, "cert"),
    "key": (TEXT, "key"),
    "spoolDir": (TEXT, "spool_dir"),
    "maxSpoolBytes": (SIZE, "max_spool_bytes"),
    "leaseSeconds": (COUNT, "lease_seconds"),
    "dedupWindow": (DURATION, "dedup_window"),
    "dedupMessages": (COUNT, "dedup_messages"),
    "includeSubscription": (FLAG, "include_subscription"),
    "drainWaitMs": (MILLISECONDS, "drain_wait"),
}
# Internal: the folder of the note that the source waits for its server.
NOTES = "notesDir"
_STREAM: dict[str, tuple[Kind, str]] = {
    "maxMessagesPerTrigger": (COUNT, "max_messages_per_trigger"),
    "maxBytesPerTrigger": (SIZE, "max_bytes_per_trigger"),
    "lingerMs": (MILLISECONDS, "linger"),
    "idleWaitMs": (MILLISECONDS, "idle_wait"),
    "maxOutstandingMessages": (COUNT, "max_outstanding_messages"),
    "maxOutstandingBytes": (SIZE, "max_outstanding_bytes"),
    "streams": (COUNT, "streams"),
    "acknowledge": (_ACKNOWLEDGE, "acknowledge"),
    "receivers": (_RECEIVERS, "receivers"),
    NOTES: (TEXT, "notes_dir"),
}
_BATCH: dict[str, tuple[Kind, str]] = {
    "maxMessages": (COUNT, "max_messages_per_trigger"),
    "maxBytes": (SIZE, "max_bytes_per_trigger"),
    "maxSeconds": (SECONDS, "linger"),
}
# Options with these beginnings are settings of the object store of `spoolDir`. Spark redacts the
# second one in plans and logs, because its name has "secret".
STORAGE, SECRET = "storage.", "storageSecret."
_STORAGE = "storage"
# Internal: the number of the read that a DataFrame of BatchRead.load belongs to.
READ = "readNumber"
# Internal: the job's table proves that a batch is committed, if Spark does not.
PROOF = "proof"
# Internal: end the query with the error DRAINED after the available messages, for versions of
# PySpark whose AvailableNow is one batch.
UNTIL_DRAINED = "untilDrained"
DRAINED = "all available messages are read"
_LAYOUT: dict[str, Kind] = {
    "numPartitions": COUNT,
    "partitionBy": choice("rows", "orderingKey"),
    "transport": choice("auto", "inline", "file"),
}

_STREAM_KINDS = {
    **{name: kind for name, (kind, _) in {**_SOURCE, **_STREAM}.items()},
    **_LAYOUT,
    PROOF: choice("table"),
    UNTIL_DRAINED: FLAG,
}
_BATCH_KINDS = {
    **{name: kind for name, (kind, _) in {**_SOURCE, **_BATCH}.items()},
    **_LAYOUT,
    READ: COUNT,
}


def stream_option_names() -> set[str]:
    """Return the names of the options of `readStream` that are meant for users."""
    return set(_STREAM_KINDS) - {NOTES, PROOF, UNTIL_DRAINED}


def batch_option_names() -> set[str]:
    """Return the names of the options of `read` that are meant for users."""
    return set(_BATCH_KINDS) - {READ}


def check_options(given: Mapping[str, str]) -> None:
    """Check options that must be valid for a stream or for a batch read.

    Raises:
        ValueError: An option is unknown or missing, or its value is invalid.
    """
    names = set(_read(_STREAM_KINDS | _BATCH_KINDS, given))
    kinds: list[type[StreamOptions | BatchOptions]] = [StreamOptions, BatchOptions]
    if names & set(_BATCH):
        kinds.reverse()
    errors = []
    for kind in kinds:
        try:
            kind.parse(given, files_are_shared=True)
        except ValueError as error:
            errors.append(error)
        else:
            return
    # The first kind is the likely one.
    raise errors[0]


@dataclass(frozen=True)
class Layout:
    """Division of the rows of a batch into partitions.

    Attributes:
        partitions: Number of partitions. None: one for each core, with 5,000 to 25,000 rows.
        cores: Number of cores that have no other work.
        by_key: Put rows with the same ordering key into the same partition, in their order.
        inline: Send the rows with the partitions, for executors that do not see the spool's files.
        subscription: Value of the column `subscription` in all rows, independent of the setting
            under which their segment was written. None: the rows have no such column.
    """

    partitions: int | None = None
    cores: int = 1
    by_key: bool = False
    inline: bool = True
    subscription: str | None = None


@dataclass(frozen=True)
class StreamOptions:
    """Parsed options of `readStream`.

    Attributes:
        settings: Settings of the session.
        layout: Division of the rows into partitions.
        proven_by_table: Whether the table of a job proves that a batch is committed.
        until_drained: Whether the query ends after the available messages.
    """

    settings: IngestSettings
    layout: Layout
    proven_by_table: bool = False
    until_drained: bool = False

    @classmethod
    def parse(
        cls, given: Mapping[str, str], *, files_are_shared: bool, cores: int = 1
    ) -> StreamOptions:
        """Parse the options that Spark passes.

        Args:
            given: The options as text.
            files_are_shared: Whether executors see the files of this machine.
            cores: As in `Layout`.

        Raises:
            ValueError: An option is unknown or missing, or its value is invalid.
            TypeError: A value has the wrong type.
        """
        values = _read(_STREAM_KINDS, given)
        _require(values, "readStream")
        settings = _settings({**_SOURCE, **_STREAM}, values)
        layout = _layout(values, settings, files_are_shared, cores)
        return cls(settings, layout, PROOF in values, values.get(UNTIL_DRAINED, False))


@dataclass(frozen=True)
class BatchOptions:
    """Parsed options of `read`.

    Attributes:
        settings: Settings of the session.
        layout: Division of the rows into partitions.
        read: Number of the read that the DataFrame belongs to. None: any read.
    """

    settings: IngestSettings
    layout: Layout
    read: int | None = None

    @classmethod
    def parse(
        cls, given: Mapping[str, str], *, files_are_shared: bool, cores: int = 1
    ) -> BatchOptions:
        """Parse the options that Spark passes; see `StreamOptions.parse`."""
        values = _read(_BATCH_KINDS, given)
        _require(values, "read")
        settings = _settings(
            {**_SOURCE, **_BATCH},
            values,
            is_single=True,
            max_messages_per_trigger=DEFAULT_MAX_MESSAGES,
            max_bytes_per_trigger=DEFAULT_MAX_BYTES,
            linger=DEFAULT_MAX_SECONDS,
            idle_wait=DEFAULT_MAX_SECONDS,
            lease_seconds=BATCH_LEASE_SECONDS,
        )
        layout = _layout(values, settings, files_are_shared, cores)
        return cls(settings, layout, values.get(READ))


def _read(kinds: Mapping[str, Kind], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of options; those with the beginnings of settings are one value."""
    beginnings = STORAGE, SECRET.lower()
    storage = {name: text for name, text in given.items() if name.lower().startswith(beginnings)}
    values = read_options(kinds, {name: given[name] for name in given.keys() - storage.keys()})
    if storage:
        values[_STORAGE] = {name.lower().partition(".")[2]: text for name, text in storage.items()}
    return values


def _require(values: Mapping[str, Any], what: str) -> None:
    for name, meaning in (
        ("subscription", "projects/P/subscriptions/S, or S alone with the option 'project'"),
        ("spoolDir", "a folder for this query only, which outlives it, as the checkpoint does"),
    ):
        if name not in values:
            raise ValueError(f"option {name!r} is missing; {what} needs {meaning}")
    if "token" in values and "tokenFile" in values:
        raise ValueError("options 'token' and 'tokenFile' exclude each other: give only one")


def _settings(
    table: Mapping[str, tuple[Kind, str]], values: Mapping[str, Any], **defaults: Any
) -> IngestSettings:
    """Return the settings.

    Args:
        table: Option names with the fields that they set.
        values: The values of options.
        defaults: The fields without an option of `values`.

    Raises:
        ValueError: A value is out of range. The error has the names of options.
    """
    given = {field: values[name] for name, (_, field) in table.items() if name in values}
    given[_STORAGE] = values.get(_STORAGE, {})
    try:
        return IngestSettings(**{**defaults, **given})
    except ValueError as error:
        options = {field: name for name, (_, field) in table.items()}
        raise ValueError(with_names(str(error), options)) from None


def _layout(
    values: Mapping[str, Any], settings: IngestSettings, files_are_shared: bool, cores: int
) -> Layout:
    transport = values.get("transport", "auto")
    # All machines see a bucket.
    are_seen = files_are_shared or not isinstance(settings.spool(), LocalFolder)
    return Layout(
        partitions=values.get("numPartitions"),
        cores=cores,
        by_key=values.get("partitionBy") == "orderingKey",
        inline=not are_seen if transport == "auto" else transport == "inline",
        subscription=settings.column_subscription,
    )
