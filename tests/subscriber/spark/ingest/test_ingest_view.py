"""The progress display of `pullstream ingest`, without Spark."""

from __future__ import annotations

import io
import json
import sys
import threading
from datetime import datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.live import Live

from pullstream.cli.ingest_metrics import metrics_of
from pullstream.cli.ingest_view import (
    IngestView,
    Lines,
    LiveLine,
    Moment,
    RateMeter,
    Rates,
    iso_time,
    progress_record,
    progress_text,
    shown,
    summary,
)
from pullstream.spark.ingest.report import (
    IngestReport,
    Phase,
    Receivers,
    Totals,
    Waiting,
)
from pullstream.spark.receiving.outage_note import Outage
from pullstream_protocol.clock import ManualClock
from tests.completed import run_command

NOW = 1_700_000_000.0

REPORT = IngestReport(
    Totals(batches=3, rows=3000, bytes=34_864, bad=5, known=1, unknown_fields=7),
    seconds=14.9,
    source={"leftOut": 2, "plan": 7, "longCommitted": 1},
    to="/data/orders",
    bad_to="/data/orders-deadletter",
    phase=Phase.WRITING,
    since=NOW - 3,
    waiting=Waiting(2, 40_000, 3, 75.0),
    receivers=Receivers(4, 3, 1),
    reasons={"not UTF-8": 1, "missing: id": 4},
    unknown={"c": 3, "a.b": 4},
)


class Recorder:
    """Keeps the shown moments."""

    pace = 2.0

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.has_shown = threading.Event()

    def show(self, moment: Moment) -> None:
        self.moments.append(moment)
        if len(self.moments) > 1:
            self.has_shown.set()


def test_the_ingest_progress_has_phase_rates_lag_backlog_and_the_reason_of_bad_rows() -> None:
    """Parts without a value are left out."""
    assert progress_text(Moment(REPORT, Rates(312.4, 3400.0), 2000, NOW)) == (
        "writing for 3s, 3,000 rows in 3 batches, 312 rows/s, 3,400 bytes/s, lag 1m 15s, "
        "3 of 4 receivers, started again 1 time, 2,000 messages unacknowledged, "
        "1 batch was there already, "
        "5 bad rows (most often: missing: id), 7 fields outside the schema (most often: a.b, c)"
    )
    started = Moment(IngestReport(since=NOW), Rates(0.0, 0.0), None, NOW)
    assert progress_text(started) == (
        "checking the subscription for 0s, 0 rows in 0 batches, 0 rows/s, 0 bytes/s, lag 0s"
    )


@pytest.mark.parametrize(("ago", "form"), [(0.0, "%H:%M:%S"), (200_000.0, "%Y-%m-%d %H:%M:%S")])
def test_the_ingest_progress_tells_since_when_the_job_waits_for_messages(
    ago: float, form: str
) -> None:
    """A time of another day has its date."""
    report = IngestReport(phase=Phase.WAITING, since=NOW - ago)
    local = datetime.fromtimestamp(NOW - ago).astimezone().strftime(form)
    text = progress_text(Moment(report, Rates(0.0, 0.0), None, NOW))
    assert text.startswith(f"waiting for messages since {local}, ")


OUTAGE = IngestReport(
    phase=Phase.UNREACHABLE,
    since=NOW - 5,
    outage=Outage(NOW - 5, "UNAVAILABLE: connection refused"),
    server="pubsub.shop:8085",
)


def test_the_ingest_progress_names_the_server_that_cannot_be_reached() -> None:
    """A person sees what to repair, and a program, too."""
    moment = Moment(OUTAGE, Rates(0.0, 0.0), None, NOW)
    local = datetime.fromtimestamp(NOW - 5).astimezone().strftime("%H:%M:%S")
    assert progress_text(moment).startswith(
        f"waiting for the server at pubsub.shop:8085 since {local} "
        "(UNAVAILABLE: connection refused), 0 rows"
    )
    record = progress_record(moment)
    assert record["phase"] == "waiting for the server"
    assert record["outage"] == {
        "server": "pubsub.shop:8085",
        "since": "2023-11-14T22:13:15.000Z",
        "error": "UNAVAILABLE: connection refused",
    }
    values = {metric.name: metric.values for metric in metrics_of(moment)}
    assert values["pullstream_ingest_outage_seconds"] == {"": 5.0}


def test_the_json_progress_of_an_ingest_job_has_one_shape_from_its_first_line_on() -> None:
    """The result has the same counts."""
    first = progress_record(Moment(IngestReport(since=NOW), Rates(0.0, 0.0), None, NOW))
    later = progress_record(Moment(REPORT, Rates(312.44, 3400.0), 2000, NOW))
    assert list(first) == list(later)
    assert later == {
        "type": "progress",
        "time": "2023-11-14T22:13:20.000Z",
        "phase": "writing",
        "since": "2023-11-14T22:13:17.000Z",
        "batches": 3,
        "messages": 3000,
        "bytes": 34_864,
        "bad": 5,
        "badReasons": {"missing: id": 4, "not UTF-8": 1},
        "known": 1,
        "unknownFields": 7,
        "unknownFieldNames": {"a.b": 4, "c": 3},
        "cutTimes": 0,
        "duplicates": 2,
        "seconds": 14.9,
        "rowsPerSecond": 312.4,
        "bytesPerSecond": 3400.0,
        "lagSeconds": 75.0,
        "unacknowledged": 2000,
        "plan": 7,
        "waitingSegments": 2,
        "waitingBytes": 40_000,
        "deliveryAttempts": 3,
        "longCommitted": 1,
        "receivers": {"wanted": 4, "running": 3, "restarts": 1},
        "outage": None,
        "notice": "",
    }
    result = json.loads(summary(REPORT, as_json=True, now=NOW))
    assert result["type"] == "result"
    assert result["to"] == "/data/orders"
    counts = ("batches", "messages", "bytes", "bad", "badReasons", "known", "duplicates", "seconds")
    assert {name: result[name] for name in counts} == {name: later[name] for name in counts}


def test_the_summary_of_an_ingest_job_names_known_batches_and_the_most_frequent_reason() -> None:
    """Rows and places are named for people."""
    assert summary(REPORT, as_json=False, now=NOW).splitlines() == [
        "3,000 messages in 3 batches, 34,864 bytes of data, in 14.9 s (201 a second)",
        "2,995 rows to /data/orders",
        "5 bad rows to /data/orders-deadletter",
        "  4 because of: missing: id",
        "  1 because of: not UTF-8",
        "1 batch was in the table already",
        "7 fields outside the schema left out, most often: a.b, c",
        "2 duplicates left out",
    ]


def test_the_summary_of_upserts_counts_changes_and_one_is_written_as_one() -> None:
    """The table may have fewer rows than changes."""
    report = IngestReport(Totals(batches=1, rows=1, bytes=9), seconds=2.0, to="/data/customers")
    assert summary(report, as_json=False, now=NOW, unit="change").splitlines() == [
        "1 message in 1 batch, 9 bytes of data, in 2.0 s (0 a second)",
        "1 change to /data/customers",
        "0 duplicates left out",
    ]


def test_the_ingest_view_shows_the_newest_report_at_its_pace() -> None:
    """The first report is shown at once, before Spark is imported."""
    clock, form = ManualClock(NOW), Recorder()
    view = IngestView(form, IngestReport(since=NOW), lambda: 7, clock)
    view.show_if_due()
    clock.advance(1.9)
    view.update(REPORT)
    view.show_if_due()
    assert [moment.report for moment in form.moments] == [IngestReport(since=NOW)]
    clock.advance(0.1)
    view.show_if_due()
    assert form.moments[-1].report is REPORT
    assert form.moments[-1].waiting == 7


def test_the_ingest_view_shows_signs_of_life_while_the_commands_thread_waits() -> None:
    """Starting Java blocks that thread for many seconds."""
    form = Recorder()
    form.pace = 0.01
    with IngestView(form, IngestReport(since=NOW)).running():
        assert form.has_shown.wait(30)


def test_the_ingest_view_shows_the_last_report_of_a_failed_job() -> None:
    """The written rows stay in the table."""
    form = Recorder()
    view = IngestView(form, IngestReport(since=NOW), clock=ManualClock(NOW))

    def fail() -> None:
        with view.running():
            view.update(REPORT)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert form.moments[-1].report is REPORT
    with view.running():
        shown_before = len(form.moments)
    assert len(form.moments) == shown_before


def test_a_notice_of_an_ingest_job_is_printed_once_in_text_and_in_each_json_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The job goes on after it."""
    moment = Moment(
        IngestReport(since=NOW, notice="the query is started again"), Rates(0.0, 0.0), None, NOW
    )
    for as_json in (False, True):
        lines = Lines(as_json=as_json)
        lines.show(moment)
        lines.show(moment)
    text = capsys.readouterr().out.splitlines()
    assert [line.endswith("started again") for line in text[:3]] == [True, False, False]
    assert [json.loads(line)["notice"] for line in text[3:]] == ["the query is started again"] * 2


def test_the_ingest_progress_on_a_terminal_is_one_line_that_is_redrawn() -> None:
    """A notice stays above it."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    with Live(auto_refresh=False, console=console) as live:
        line = LiveLine(live)
        for report in (REPORT, IngestReport(since=NOW, notice="the query is started again")):
            line.show(Moment(report, Rates(1.0, 2.0), None, NOW))
    assert "writing for 3s, 3,000 rows" in out.getvalue()
    assert "the query is started again" in out.getvalue()


@pytest.mark.parametrize(("terminal", "form"), [(True, LiveLine), (False, Lines)])
def test_the_form_of_the_ingest_progress_follows_the_output(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, form: type[Any]
) -> None:
    """JSON is never redrawn."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    with shown(as_json=False, pace=5.0) as found:
        assert type(found) is form
    with shown(as_json=True, pace=5.0) as found:
        assert (type(found), found.pace) == (Lines, 5.0)


def test_the_rates_of_an_ingest_job_are_those_of_the_last_half_minute() -> None:
    """There is no rate before there are two sums."""
    meter = RateMeter()
    assert meter.rates == (0.0, 0.0)
    meter.add(10.0, 0, 0)
    assert meter.rates == (0.0, 0.0)
    meter.add(20.0, 1000, 50_000)
    assert meter.rates == (100.0, 5000.0)
    meter.add(50.0, 1000, 50_000)
    assert meter.rates == (0.0, 0.0)


def test_the_ingest_view_starts_without_importing_pyspark() -> None:
    """The import takes a second, in which nothing would be shown."""
    script = (
        "import sys, pullstream.cli.ingest, pullstream.spark.ingest.report\n"
        "print({'pyspark', 'prometheus_client', 'rich'} & sys.modules.keys())"
    )
    assert run_command([sys.executable, "-c", script], check=True).stdout.strip() == "set()"


def test_times_in_the_json_of_an_ingest_job_are_utc_with_milliseconds() -> None:
    assert iso_time(NOW + 0.0625) == "2023-11-14T22:13:20.062Z"


def test_the_metrics_of_an_ingest_job_have_its_counts_lag_backlog_and_phase() -> None:
    """Prometheus reads them as a page."""
    from prometheus_client import CollectorRegistry, generate_latest

    from pullstream.telemetry.job_metrics import JobCollector

    moment = Moment(REPORT, Rates(1.0, 1.0), 2000, NOW)
    registry = CollectorRegistry()
    registry.register(JobCollector(lambda: metrics_of(moment), {"subscription": "s"}))
    page = generate_latest(registry).decode()
    found: dict[tuple[str, ...], float] = {
        (
            sample.name.removeprefix("pullstream_ingest_"),
            sample.labels.pop("subscription"),
            *sample.labels.values(),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    phases: dict[tuple[str, ...], float] = {
        ("phase", "s", phase.value): float(phase is Phase.WRITING) for phase in Phase
    }
    assert found == {
        ("rows_total", "s"): 3000,
        ("bytes_total", "s"): 34_864,
        ("batches_total", "s"): 3,
        ("known_batches_total", "s"): 1,
        ("bad_rows_total", "s"): 5,
        ("unknown_fields_total", "s"): 7,
        ("duplicates_total", "s"): 2,
        ("bad_rows_by_reason_total", "s", "not UTF-8"): 1,
        ("bad_rows_by_reason_total", "s", "missing: id"): 4,
        ("lag_seconds", "s"): 75,
        ("unacknowledged_messages", "s"): 2000,
        ("plan", "s"): 7,
        ("waiting_segments", "s"): 2,
        ("waiting_bytes", "s"): 40_000,
        ("delivery_attempts", "s"): 3,
        ("long_committed_total", "s"): 1,
        ("receivers_wanted", "s"): 4,
        ("receivers", "s"): 3,
        ("receiver_restarts_total", "s"): 1,
        ("outage_seconds", "s"): 0,
        ("phase_seconds", "s"): 3,
        **phases,
    }
    unknown = {metric.name for metric in metrics_of(moment._replace(waiting=None))}
    assert "pullstream_ingest_unacknowledged_messages" not in unknown
