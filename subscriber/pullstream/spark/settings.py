"""Settings of an ingestion session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from pullstream.flow_control import MAX_EXTENSION, MIN_EXTENSION, FlowControl
from pullstream.rpc.endpoint import BrokerArguments
from pullstream.runtime.validation import require_positive
from pullstream_protocol import names
from pullstream_protocol.errors import InvalidArgument

from .protocol.acknowledge import Acknowledge
from .spool_store import spool_store
from .stores import Bucket, LocalFolder

# Spark processes one batch, which stays outstanding, while the next one is collected, and a third
# may be in transit. With less, the stream would pause for the time of a batch.
OUTSTANDING_BATCHES = 3

# The first messages of a subscription take some milliseconds to arrive. With a shorter wait
# (seconds), any subscription would look empty.
MIN_DRAIN_WAIT = 0.1

_MIB = 1024 * 1024

# A column of one Arrow batch holds 2 GiB at most. Half of that leaves room for messages of unequal
# sizes.
MAX_BATCH_BYTES = 1024 * _MIB


class Receivers(Enum):
    """Where the receivers of a query are.

    EMBEDDED: one, in the process of the source. OUTSIDE: any number, in other processes.
    """

    EMBEDDED = "embedded"
    OUTSIDE = "outside"


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestSettings:
    """Settings of a source: the subscription, the spool and the size of batches.

    The values are checked when the object is created. Durations are in seconds, sizes in bytes.

    Attributes:
        subscription: `projects/P/subscriptions/S`, or `S` alone together with `project`.
        spool_dir: Folder, used by this query only: a path on a disk, or the URL of a folder in an
            object store (`s3://`, `gs://`, `az://`). Like the checkpoint, it must outlive the
            process.
        storage: Settings of the object store, such as `aws_region`; see obstore's documentation.
            Default: the environment of each machine.
        project: Project of a short `subscription`. Default: the environment variable
            GOOGLE_CLOUD_PROJECT.
        endpoint: As in `SubscriberClient`. None: taken from the environment.
        token: As in `SubscriberClient`. None: taken from the environment.
        ca: As in `SubscriberClient`. None: taken from the environment.
        cert: As in `SubscriberClient`. None: taken from the environment.
        key: As in `SubscriberClient`. None: taken from the environment.
        max_messages_per_trigger: Maximum number of messages in a batch.
        max_bytes_per_trigger: Maximum size of a batch; at most 1 GiB. Bytes are counted as flow
            control counts them, so the limit is soft: a single larger message still passes.
        linger: Time that a batch waits for more messages after its first message.
        idle_wait: Time that `latest` waits for a first message.
        drain_wait: An "available now" run considers the subscription empty when no message has
            arrived for this time. At least 0.1.
        max_outstanding_messages: Maximum number of messages that are received and not committed.
            Default: three batches. At least two batches.
        max_outstanding_bytes: The same limit for bytes.
        streams: Number of streams, which share the limits of outstanding messages.
        lease_seconds: Length of each lease extension, 10 to 600. The messages of a killed process
            are unavailable for up to this time.
        dedup_window: Time for which committed messages are remembered, to leave out redeliveries;
            at least four leases.
        dedup_messages: Maximum number of committed messages that are remembered. A million take
            8 MB of the spool if their ids are numbers, and hardly any memory.
        max_spool_bytes: Maximum size of the segments that are not committed; a single larger one
            still passes.
        acknowledge: When messages are acknowledged.
        receivers: Where the receivers are.
        include_subscription: Add the column `subscription` to the rows.
        notes_dir: Folder on this machine for the note that the source waits for its server.
            Default: the spool, if it is on this machine; otherwise there is no note.
        is_single: Only one batch is read. Then one batch is the default limit of outstanding
            messages, because each received message that is not used counts as a delivery attempt.

    Raises:
        ValueError: A value is out of range; the error names it.
        TypeError: A value has the wrong type; the error names it.
    """

    subscription: str
    spool_dir: Path | str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    project: str | None = None
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    max_messages_per_trigger: int = 10_000
    max_bytes_per_trigger: int = 64 * _MIB
    linger: float = 0.5
    idle_wait: float = 0.5
    drain_wait: float = 3.0
    max_outstanding_messages: int | None = None
    max_outstanding_bytes: int | None = None
    streams: int = 1
    lease_seconds: int = 60
    dedup_window: float = 86_400.0
    dedup_messages: int = 5_000_000
    max_spool_bytes: int = 4096 * _MIB
    acknowledge: Acknowledge = Acknowledge.COMMITTED
    receivers: Receivers = Receivers.EMBEDDED
    include_subscription: bool = False
    notes_dir: str | None = None
    is_single: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "spool_dir", str(self.spool_dir))
        self.spool()
        object.__setattr__(self, "subscription", self._full_name())
        for name in (
            *("max_messages_per_trigger", "max_bytes_per_trigger", "max_outstanding_messages"),
            *("max_outstanding_bytes", "dedup_messages", "max_spool_bytes", "streams"),
        ):
            value = getattr(self, name)
            if value is not None:
                require_positive(name, value)
        if self.max_bytes_per_trigger > MAX_BATCH_BYTES:
            raise ValueError(
                f"max_bytes_per_trigger is {self.max_bytes_per_trigger}; it must be at most "
                f"{MAX_BATCH_BYTES}"
            )
        for name, least in (
            *(("linger", 0), ("idle_wait", 0), ("dedup_window", 0)),
            ("drain_wait", MIN_DRAIN_WAIT),
        ):
            value = getattr(self, name)
            if not least <= value < float("inf"):
                raise ValueError(f"{name} is {value!r}; it must be {least} seconds or more")
        if not MIN_EXTENSION <= self.lease_seconds <= MAX_EXTENSION:
            raise ValueError(
                f"lease_seconds is {self.lease_seconds!r}; it must be between {MIN_EXTENSION} and "
                f"{MAX_EXTENSION} seconds"
            )
        if self.dedup_window < 4 * self.lease_seconds:
            raise ValueError(
                f"dedup_window is {self.dedup_window:g} seconds and lease_seconds is "
                f"{self.lease_seconds}; dedup_window must be at least four times lease_seconds"
            )
        if not self.is_single:
            self._check_outstanding("messages", self.flow_control.max_messages)
            self._check_outstanding("bytes", self.flow_control.max_bytes)

    def _check_outstanding(self, unit: str, outstanding: int) -> None:
        batch = getattr(self, f"max_{unit}_per_trigger")
        if outstanding < 2 * batch:
            raise ValueError(
                f"max_outstanding_{unit} is {outstanding}; it must be at least twice "
                f"max_{unit}_per_trigger ({batch}), because a batch is outstanding until it is "
                "committed, while the next one is collected"
            )

    def spool(self) -> LocalFolder | Bucket:
        """Return the folder `spool_dir`.

        Raises:
            ValueError: It is a URL that cannot be used, or the settings of the store are wrong.
        """
        return spool_store(str(self.spool_dir), self.storage, "spool_dir")

    def _full_name(self) -> str:
        full = self.subscription
        if "/" not in full:
            project = self.project or os.environ.get("GOOGLE_CLOUD_PROJECT", "")
            full = names.subscription_path(project, full)
        try:
            return names.validate("subscriptions", full)
        except InvalidArgument:
            raise ValueError(
                f"subscription is {self.subscription!r}, which gives {full}; it must be "
                "projects/PROJECT/subscriptions/SUBSCRIPTION, or SUBSCRIPTION alone together with "
                f"project or the environment variable GOOGLE_CLOUD_PROJECT; {names.ID_RULE}"
            ) from None

    @property
    def connection(self) -> BrokerArguments:
        """Arguments of the client."""
        return {
            "endpoint": self.endpoint,
            "token": self.token,
            "ca": self.ca,
            "cert": self.cert,
            "key": self.key,
        }

    @property
    def notes_folder(self) -> Path | None:
        """The folder for the note that the source waits for its server."""
        store = self.spool()
        here = store.folder if isinstance(store, LocalFolder) else None
        return here if self.notes_dir is None else Path(self.notes_dir)

    @property
    def column_subscription(self) -> str | None:
        """The value of the column `subscription`, or None if the rows have no such column."""
        return self.subscription if self.include_subscription else None

    @property
    def flow_control(self) -> FlowControl:
        """The limits of the subscription. A lease ends when its batch is committed, not before."""
        batches = 1 if self.is_single else OUTSTANDING_BATCHES
        return FlowControl(
            max_messages=self.max_outstanding_messages or batches * self.max_messages_per_trigger,
            max_bytes=self.max_outstanding_bytes or batches * self.max_bytes_per_trigger,
            max_lease_duration=float("inf"),
            min_duration_per_lease_extension=self.lease_seconds,
            max_duration_per_lease_extension=self.lease_seconds,
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits that the caller sets for one batch.

    Attributes:
        messages: Maximum number of messages. None: the limit of the settings.
        bytes: Maximum size in bytes. None: the limit of the settings.
    """

    messages: int | None = None
    bytes: int | None = None

    def within(self, settings: IngestSettings) -> tuple[int, int]:
        """Return the messages and bytes that both these limits and the settings allow."""
        messages, size = settings.max_messages_per_trigger, settings.max_bytes_per_trigger
        return min(self.messages or messages, messages), min(self.bytes or size, size)
