"""What a user chooses for an ingestion: the settings of an IngestSession."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from protocol import names
from protocol.errors import InvalidArgument
from subscriber.arguments import count
from subscriber.flow_control import MAX_EXTENSION, MIN_EXTENSION, FlowControl

# A batch that Spark works on is still outstanding while the next one gathers, and a third may be
# on its way: with less the stream would stand still for as long as a batch takes.
OUTSTANDING_BATCHES = 3

# A subscription's first messages take some milliseconds to come: with less, in seconds, any of them
# would pass for empty.
MIN_DRAIN_WAIT = 0.1

_MIB = 1024 * 1024

# A column of one Arrow batch holds 2 GiB at most; half of it allows for messages of unequal sizes.
MAX_BATCH_BYTES = 1024 * _MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestSettings:
    """Where messages come from, where they are kept meanwhile, and how much at a time.

    Checked when made; durations are seconds, sizes are bytes.

    subscription: `projects/P/subscriptions/S`, or `S` alone with `project`.
    spool_dir: a folder on a local disk, for this query alone. It must outlive the process, as the
        checkpoint does.
    project: of a short `subscription`. Default: the environment's GOOGLE_CLOUD_PROJECT.
    endpoint: as `SubscriberClient` takes it. None: the environment says where.
    max_messages_per_trigger, max_bytes_per_trigger: a batch at most. The bytes are counted as flow
        control does, so the limit is soft; a single larger message still gets through.
    linger: how long a batch that has begun waits to be filled.
    idle_wait: how long `latest` waits for a first message.
    drain_wait: after how long without a message an "available now" run takes the subscription for
        empty; 0.1 at least.
    max_outstanding_messages, max_outstanding_bytes: received and not committed. Default: three
        batches; at least two.
    is_single: only one batch is wanted. Then that is what is outstanding, and no more: what was
        received in vain counts as an attempt to deliver it.
    lease_seconds: of each extension. So long may the messages of a killed process be out of reach.
    dedup_window, dedup_messages: how long and how many committed messages are remembered, to
        suppress a redelivery. A million take about 80 MB of memory, or 140 if they are not numbers.
    max_spool_bytes: what the spool may take on disk.
    fail_on_missing_segment: whether it is an error that the spool does not have, or not any more,
        what the checkpoint asks for. Else a batch that is lost is empty when it is replayed, which
        takes its rows out of a sink that overwrites by batch id.
    include_subscription: whether rows have the column `subscription`.

    Raises:
        ValueError, TypeError: a value is out of its range, or of the wrong kind; it is named.
    """

    subscription: str
    spool_dir: Path
    project: str | None = None
    endpoint: str | None = None
    max_messages_per_trigger: int = 10_000
    max_bytes_per_trigger: int = 64 * _MIB
    linger: float = 0.5
    idle_wait: float = 0.5
    drain_wait: float = 3.0
    max_outstanding_messages: int | None = None
    max_outstanding_bytes: int | None = None
    lease_seconds: int = 60
    dedup_window: float = 86_400.0
    dedup_messages: int = 1_000_000
    max_spool_bytes: int = 4096 * _MIB
    fail_on_missing_segment: bool = True
    include_subscription: bool = False
    is_single: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "spool_dir", Path(self.spool_dir))
        object.__setattr__(self, "subscription", self._full_name())
        for name in (
            *("max_messages_per_trigger", "max_bytes_per_trigger", "max_outstanding_messages"),
            *("max_outstanding_bytes", "dedup_messages", "max_spool_bytes"),
        ):
            value = getattr(self, name)
            if value is not None:
                count(name, value)
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
        if not self.is_single:
            self._check_outstanding("messages", self.flow_control.max_messages)
            self._check_outstanding("bytes", self.flow_control.max_bytes)

    def _check_outstanding(self, unit: str, outstanding: int) -> None:
        batch = getattr(self, f"max_{unit}_per_trigger")
        if outstanding < 2 * batch:
            raise ValueError(
                f"max_outstanding_{unit} is {outstanding}; it must be at least twice "
                f"max_{unit}_per_trigger ({batch}), because a batch is outstanding until it is "
                "committed, and the next one gathers meanwhile"
            )

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
                "project or the environment's GOOGLE_CLOUD_PROJECT"
            ) from None

    @property
    def column_subscription(self) -> str | None:
        """What rows have in the column `subscription`; None: they have no such column."""
        return self.subscription if self.include_subscription else None

    @property
    def flow_control(self) -> FlowControl:
        """The limits of the subscription: a lease ends when its batch is committed, not before."""
        batches = 1 if self.is_single else OUTSTANDING_BATCHES
        return FlowControl(
            max_messages=self.max_outstanding_messages or batches * self.max_messages_per_trigger,
            max_bytes=self.max_outstanding_bytes or batches * self.max_bytes_per_trigger,
            max_lease_duration=float("inf"),
            min_duration_per_lease_extension=self.lease_seconds,
            max_duration_per_lease_extension=self.lease_seconds,
        )
