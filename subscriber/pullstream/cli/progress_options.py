"""The progress and the metrics of a command that runs until it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .ingest_view import PACE
from .parameters import Seconds, listening_address

if TYPE_CHECKING:
    from pullstream.telemetry.job_metrics import JobMetric

_Function = TypeVar("_Function", bound=Callable[..., Any])


def progress_options(function: _Function) -> _Function:
    """Add the options of progress lines and of metrics."""
    for decorate in reversed(
        (
            click.option(
                "--progress-every",
                type=Seconds(min=0.1),
                default=PACE,
                show_default=True,
                metavar="SECONDS",
                help="Interval of progress lines in a file, in a pipe, and with --json.",
            ),
            click.option(
                "--metrics-port",
                type=listening_address,
                metavar="[HOST:]PORT",
                help="Serve metrics for Prometheus at /metrics, by default on all addresses. Needs "
                "the extra pullstream[prometheus].",
            ),
        )
    ):
        function = decorate(function)
    return function


def serve_metrics_of(
    subscription: str, address: tuple[str, int] | None, read: Callable[[], Iterable[JobMetric]]
) -> None:
    """Serve the metrics of a subscription; do nothing without an address.

    Args:
        subscription: Full name, the label of every metric.
        address: Host and port, the value of --metrics-port.
        read: Returns the present metrics.

    Raises:
        UsageError: prometheus-client is missing, or the port cannot be used.
    """
    if address is None:
        return
    host, port = address
    try:
        from pullstream.telemetry.job_metrics import serve_metrics

        serve_metrics(read, {"subscription": subscription}, port, host)
    except (ImportError, OSError) as error:
        raise click.UsageError(f"--metrics-port: {error}") from error
