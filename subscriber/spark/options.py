"""The source's options: their Spark names, and the settings that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .option_text import (
    COUNT,
    DURATION,
    FLAG,
    MILLISECONDS,
    SECONDS,
    SIZE,
    TEXT,
    Kind,
    choice,
    read_options,
)
from .settings import IngestSettings

# Of a batch read, which is one long batch to an IngestSession.
DEFAULT_MAX_MESSAGES = 100_000
DEFAULT_MAX_BYTES = 256 * 2**20
DEFAULT_MAX_SECONDS = 60.0
# Nobody extends the leases of a batch read while the job works on it: they are as long as can be.
BATCH_LEASE_SECONDS = 600

# An option, its kind, and the field of IngestSettings that it sets.
_SOURCE: dict[str, tuple[Kind, str]] = {
    "subscription": (TEXT, "subscription"),
    "project": (TEXT, "project"),
    "endpoint": (TEXT, "endpoint"),
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
# For a DataFrame that BatchRead.load makes, not for users: the number of the read that it is for.
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
    """Of `readStream`."""
    return set(_STREAM_KINDS)


def batch_option_names() -> set[str]:
    """Of `read`, for users."""
    return set(_BATCH_KINDS) - {READ}


def check_names(given: Mapping[str, str]) -> None:
    """Refuse options that no read has, and values that none takes.

    Raises:
        ValueError: there is such a one.
    """
    read_options(_STREAM_KINDS | _BATCH_KINDS, given)


@dataclass(frozen=True)
class Layout:
    """How the rows of a batch become partitions.

    partitions: how many; None: one for each 25,000 rows.
    by_key: rows with the same ordering key come into the same partition, in their order.
    inline: partitions carry their rows, where executors do not see the spool's files.
    subscription: what all rows have in the column of this name, whatever was wanted when their
        segment was written; None: they have no such column.
    """

    partitions: int | None = None
    by_key: bool = False
    inline: bool = True
    subscription: str | None = None


@dataclass(frozen=True)
class StreamOptions:
    """What `readStream` was told."""

    settings: IngestSettings
    layout: Layout

    @classmethod
    def of(cls, given: Mapping[str, str], *, files_are_shared: bool) -> StreamOptions:
        """Read what Spark hands over; `files_are_shared`: executors see this machine's files.

        Raises:
            ValueError, TypeError: an option is unknown, missing, or not of its form.
        """
        values = read_options(_STREAM_KINDS, given)
        _require(values, "readStream")
        settings = IngestSettings(**_fields({**_SOURCE, **_STREAM}, values))
        return cls(settings, _layout(values, settings, files_are_shared))


@dataclass(frozen=True)
class BatchOptions:
    """What `read` was told.

    read: the number of the read that the DataFrame is for; None: whichever there is.
    """

    settings: IngestSettings
    layout: Layout
    read: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, str], *, files_are_shared: bool) -> BatchOptions:
        """As `StreamOptions.of`."""
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
        ("spoolDir", "a folder for this query alone, which outlives it, as the checkpoint does"),
    ):
        if name not in values:
            raise ValueError(f"option {name!r} is missing; {what} needs {meaning}")


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
