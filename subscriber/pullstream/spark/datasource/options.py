"""Options of the source: their Spark names, and the settings that they set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    read_options,
)
from pullstream.spark.session.settings import IngestSettings

# Defaults of a batch read, which is one long batch of an IngestSession.
DEFAULT_MAX_MESSAGES = 100_000
DEFAULT_MAX_BYTES = 256 * 2**20
DEFAULT_MAX_SECONDS = 60.0
# Leases of a batch read are not extended while the job processes the rows, so they have the maximum
# length.
BATCH_LEASE_SECONDS = 600

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
_STREAM: dict[str, tuple[Kind, str]] = {
    "maxMessagesPerTrigger": (COUNT, "max_messages_per_trigger"),
    "maxBytesPerTrigger": (SIZE, "max_bytes_per_trigger"),
    "lingerMs": (MILLISECONDS, "linger"),
    "idleWaitMs": (MILLISECONDS, "idle_wait"),
    "maxOutstandingMessages": (COUNT, "max_outstanding_messages"),
    "maxOutstandingBytes": (SIZE, "max_outstanding_bytes"),
    "failOnMissingSegment": (FLAG, "fail_on_missing_segment"),
}
_BATCH: dict[str, tuple[Kind, str]] = {
    "maxMessages": (COUNT, "max_messages_per_trigger"),
    "maxBytes": (SIZE, "max_bytes_per_trigger"),
    "maxSeconds": (SECONDS, "linger"),
}
# Internal: the number of the read that a DataFrame of BatchRead.load belongs to.
READ = "readNumber"
_LAYOUT: dict[str, Kind] = {
    "numPartitions": COUNT,
    "partitionBy": choice("rows", "orderingKey"),
    "transport": choice("auto", "inline", "file"),
}

_STREAM_KINDS = {name: kind for name, (kind, _) in {**_SOURCE, **_STREAM}.items()} | _LAYOUT
_BATCH_KINDS = {
    **{name: kind for name, (kind, _) in {**_SOURCE, **_BATCH}.items()},
    **_LAYOUT,
    READ: COUNT,
}


def stream_option_names() -> set[str]:
    """Return the names of the options of `readStream`."""
    return set(_STREAM_KINDS)


def batch_option_names() -> set[str]:
    """Return the names of the options of `read` that are meant for users."""
    return set(_BATCH_KINDS) - {READ}


def check_names(given: Mapping[str, str]) -> None:
    """Check options that may belong to either kind of read.

    Raises:
        ValueError: An option exists for neither read, or its value is invalid.
    """
    read_options(_STREAM_KINDS | _BATCH_KINDS, given)


@dataclass(frozen=True)
class Layout:
    """Division of the rows of a batch into partitions.

    Attributes:
        partitions: Number of partitions. None: one for each 25,000 rows.
        by_key: Put rows with the same ordering key into the same partition, in their order.
        inline: Send the rows with the partitions, for executors that do not see the spool's files.
        subscription: Value of the column `subscription` in all rows, independent of the setting
            under which their segment was written. None: the rows have no such column.
    """

    partitions: int | None = None
    by_key: bool = False
    inline: bool = True
    subscription: str | None = None


@dataclass(frozen=True)
class StreamOptions:
    """Parsed options of `readStream`."""

    settings: IngestSettings
    layout: Layout

    @classmethod
    def parse(cls, given: Mapping[str, str], *, files_are_shared: bool) -> StreamOptions:
        """Parse the options that Spark passes.

        Args:
            given: The options as text.
            files_are_shared: Whether executors see the files of this machine.

        Raises:
            ValueError: An option is unknown or missing, or its value is invalid.
            TypeError: A value has the wrong type.
        """
        values = read_options(_STREAM_KINDS, given)
        _require(values, "readStream")
        settings = IngestSettings(**_fields({**_SOURCE, **_STREAM}, values))
        return cls(settings, _layout(values, settings, files_are_shared))


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
    def parse(cls, given: Mapping[str, str], *, files_are_shared: bool) -> BatchOptions:
        """Parse the options that Spark passes; see `StreamOptions.parse`."""
        values = read_options(_BATCH_KINDS, given)
        _require(values, "read")
        fields = {
            "is_single": True,
            "max_messages_per_trigger": DEFAULT_MAX_MESSAGES,
            "max_bytes_per_trigger": DEFAULT_MAX_BYTES,
            "linger": DEFAULT_MAX_SECONDS,
            "idle_wait": DEFAULT_MAX_SECONDS,
            "lease_seconds": BATCH_LEASE_SECONDS,
            **_fields({**_SOURCE, **_BATCH}, values),
        }
        settings = IngestSettings(**fields)
        return cls(settings, _layout(values, settings, files_are_shared), values.get(READ))


def _require(values: Mapping[str, Any], what: str) -> None:
    for name, meaning in (
        ("subscription", "projects/P/subscriptions/S, or S alone with the option 'project'"),
        ("spoolDir", "a folder for this query only, which outlives it, as the checkpoint does"),
    ):
        if name not in values:
            raise ValueError(f"option {name!r} is missing; {what} needs {meaning}")
    if "token" in values and "tokenFile" in values:
        raise ValueError("options 'token' and 'tokenFile' exclude each other: give only one")


def _fields(table: Mapping[str, tuple[Kind, str]], values: Mapping[str, Any]) -> dict[str, Any]:
    return {field: values[name] for name, (_, field) in table.items() if name in values}


def _layout(values: Mapping[str, Any], settings: IngestSettings, files_are_shared: bool) -> Layout:
    transport = values.get("transport", "auto")
    return Layout(
        partitions=values.get("numPartitions"),
        by_key=values.get("partitionBy") == "orderingKey",
        inline=not files_are_shared if transport == "auto" else transport == "inline",
        subscription=settings.column_subscription,
    )
