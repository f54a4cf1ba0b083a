"""The metrics of a job, read over HTTP as Prometheus does."""

from __future__ import annotations

import socket
from urllib.request import urlopen

import pytest

from pullstream.telemetry.job_metrics import JobMetric, serve_metrics

METRICS = [
    JobMetric("jobs_rows", "Rows.", {"": 3}, is_counter=True),
    JobMetric("jobs_phase", "Phase.", {"writing": 1, "waiting": 0}, "phase"),
]


def test_the_metrics_of_a_job_are_served_at_the_given_address() -> None:
    """Each collection asks the job again."""
    metrics = list(METRICS)
    port = serve_metrics(lambda: metrics, {"subscription": "s"}, 0, "127.0.0.1")
    for rows in (3, 4):
        metrics[0] = metrics[0]._replace(values={"": rows})
        with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            page = response.read().decode()
        assert f'jobs_rows_total{{subscription="s"}} {rows}.0\n' in page
        assert 'jobs_phase{phase="writing",subscription="s"} 1.0\n' in page


def test_serving_the_metrics_of_a_job_on_a_used_port_raises() -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        with pytest.raises(OSError, match="in use"):
            serve_metrics(lambda: METRICS, {}, used.getsockname()[1], "127.0.0.1")
