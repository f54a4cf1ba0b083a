"""The broker's log: one line per record, and few lines that strangers can cause."""

from __future__ import annotations

import io
import json
import logging
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pullstream_emulator import Emulator
from pullstream_emulator.log_output import (
    GRPC_LOGGER,
    JsonFormatter,
    LogHandler,
    TextFormatter,
)
from pullstream_emulator.server import MAX_METADATA_BYTES, MAX_STREAMS_PER_CONNECTION
from pullstream_protocol.clock import ManualClock
from tests.completed import run_command
from tests.emulator import http2
from tests.emulator.wire import TIMEOUT


class Log:
    """A log whose time is a test's clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stream = io.StringIO()
        self.handler = LogHandler(self.stream, self.clock)
        self.handler.setFormatter(TextFormatter())

    def write(
        self, text: str, *, place: int = 1, logger: str = "library", error: bool = False
    ) -> None:
        error_info = sys.exc_info() if error else None
        self.handler.handle(
            logging.LogRecord(logger, logging.ERROR, "file.py", place, "%s", (text,), error_info)
        )

    def wait_for_lines(self, count: int) -> None:
        """Wait for the thread that writes the numbers of suppressed records."""
        for _ in range(1000):
            if len(self.lines) >= count:
                return
            threading.Event().wait(0.01)
        raise AssertionError(f"there are not {count} lines: {self.lines}")

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.handler.close()


def test_the_broker_log_has_at_most_one_line_per_second_of_each_code_line_of_a_library(
    log: Log,
) -> None:
    for second in range(3):
        for number in range(100):
            log.write(f"{second} {number}")
        log.clock.advance(1)
        log.wait_for_lines(second + 2)
    assert log.lines == [
        "ERROR 0 0",
        "ERROR 99 more of: 0 99",
        "ERROR 100 more of: 1 99",
        "ERROR 100 more of: 2 99",
    ]


def test_a_code_line_of_a_library_can_log_again_one_second_after_its_last_log_record(
    log: Log,
) -> None:
    log.write("a")
    log.clock.advance(1)
    log.write("b")
    assert log.lines == ["ERROR a", "ERROR b"]


def test_the_reported_count_of_suppressed_log_records_is_exact_even_if_the_report_is_late(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log.handler, "_wake_reporter", lambda: None)
    log.write("a")
    log.write("b")
    log.clock.advance(1)
    log.write("c")
    log.handler.close()
    assert log.lines == ["ERROR a", "ERROR 2 more of: c"]


def test_the_log_limits_of_different_code_lines_of_a_library_are_independent(log: Log) -> None:
    for place in range(3):
        log.write("a", place=place)
    assert len(log.lines) == 3


def test_log_records_of_the_broker_are_never_suppressed(log: Log) -> None:
    for number in range(10):
        log.write(str(number), logger="pullstream.emulator")
    assert len(log.lines) == 10


def test_closing_the_broker_log_writes_the_count_of_suppressed_library_records(log: Log) -> None:
    log.write("a")
    log.write("b")
    log.handler.close()
    assert log.lines == ["ERROR a", "ERROR 1 more of: b"]


def test_a_log_text_of_a_library_is_shortened_to_one_line_in_the_broker_log(log: Log) -> None:
    log.write("a\nERROR forged\x1b[2J" + "x" * 10_000)
    (line,) = log.lines
    assert line.startswith(r"ERROR a\nERROR forged\x1b[2Jxxx")
    assert len(line) < 400


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this error has no text")


def test_a_library_that_logs_a_record_that_cannot_be_formatted_gets_no_exception(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    """Like every handler, it reports the problem on standard error, once per place and second."""
    wrong = logging.LogRecord("library", logging.ERROR, "file.py", 1, "%d calls", ("x",), None)
    error = (WithoutText, WithoutText(), None)
    other = logging.LogRecord("library", logging.ERROR, "file.py", 2, "failed", (), error)
    for record in (wrong, wrong, other, other):
        log.handler.handle(record)
    assert capsys.readouterr().err.count("--- Logging error ---") == 2
    log.handler.close()
    assert capsys.readouterr().err.count("--- Logging error ---") == 2


def test_a_traceback_of_a_library_is_in_the_broker_log_only_at_level_debug(log: Log) -> None:
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        log.write("failed", error=True)
        assert log.lines == [r"ERROR failed (ValueError: bad\nvalue)"]
        logger = logging.getLogger("pullstream")
        level = logger.level
        logger.setLevel(logging.DEBUG)
        try:
            log.clock.advance(1)
            log.write("failed", error=True)
        finally:
            logger.setLevel(level)
    assert log.lines[1:3] == ["ERROR failed", "  Traceback (most recent call last):"]


def test_a_log_record_of_the_broker_is_written_as_one_line(log: Log) -> None:
    log.write("topic a\nERROR forged", logger="pullstream.emulator")
    assert log.lines == [r"ERROR topic a\nERROR forged"]


def test_the_lines_of_a_logged_traceback_are_indented(log: Log) -> None:
    """A text of an exception that has lines cannot forge a record."""
    try:
        raise ValueError("bad\nERROR forged")
    except ValueError:
        log.write("failed", logger="pullstream.emulator", error=True)
    assert log.lines[0] == "ERROR failed"
    assert all(line.startswith("  ") for line in log.lines[1:])


def test_the_json_log_limits_length_and_number_of_library_records_like_the_text_log(
    log: Log,
) -> None:
    log.handler.setFormatter(JsonFormatter())
    for _ in range(3):
        log.write("x" * 10_000)
    log.handler.close()
    first, last = map(json.loads, log.lines)
    assert len(first["message"]) == 300
    assert last["message"].startswith("2 more of: xxx")


# ---- errors that are counted before they are records ----


@contextmanager
def counted_early(
    handler: LogHandler, name: str
) -> Iterator[tuple[logging.Logger, list[logging.LogRecord]]]:
    """Let `handler` count errors early. Yield the logger and the records that it makes."""
    logger = logging.getLogger(name)
    made: list[logging.LogRecord] = []

    def note(record: logging.LogRecord) -> bool:
        made.append(record)
        return True

    logger.addFilter(note)
    logger.addHandler(handler)
    logger.propagate = False
    handler.count_early(logger)
    try:
        yield logger, made
    finally:
        del logger.exception
        logger.propagate = True
        logger.removeHandler(handler)
        logger.removeFilter(note)


def test_the_broker_log_counts_repeated_library_errors_without_creating_log_records(
    log: Log,
) -> None:
    with counted_early(log.handler, "library.compiled") as (logger, made):
        for second in range(3):
            for number in range(100):
                logger.exception("header %s", f"{second} {number}")
            log.clock.advance(1)
            log.wait_for_lines(second + 2)
    assert log.lines == [
        "ERROR header 0 0",
        "ERROR 99 more of: header 0 0",
        "ERROR 100 more of: header 0 0",
        "ERROR 100 more of: header 0 0",
    ]
    assert len(made) == 1


def test_the_broker_log_counts_library_errors_of_each_text_and_logger_separately(
    log: Log,
) -> None:
    with (
        counted_early(log.handler, "library.compiled") as (logger, _),
        counted_early(log.handler, "library.other") as (other, _),
    ):
        logger.exception("header %s", 1)
        other.exception("header %s", 2)
        logger.exception("call %s failed", 3)
        logger.error("header %s", 4)
    assert log.lines == [
        f"ERROR {text}" for text in ("header 1", "header 2", "call 3 failed", "header 4")
    ]


def test_a_library_log_record_that_the_broker_log_counts_has_its_code_line_and_exception(
    log: Log,
) -> None:
    with counted_early(log.handler, "library.compiled") as (logger, made):
        try:
            raise ValueError("bad")
        except ValueError:
            logger.exception("failed")
    assert (made[0].filename, made[0].funcName) == (
        "test_log_output.py",
        "test_a_library_log_record_that_the_broker_log_counts_has_its_code_line_and_exception",
    )
    assert log.lines == ["ERROR failed (ValueError: bad)"]


# ---- HTTP/2 of a stranger ------------------------------------------------------------------------


def connected(emulator: Emulator) -> socket.socket:
    host, _, port = emulator.endpoint.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=TIMEOUT)
    connection.sendall(http2.OPENING)
    return connection


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += (more := connection.recv(count - len(data)))
        assert more, "the broker has closed the connection"
    return data


def next_frame(connection: socket.socket) -> tuple[int, int, bytes]:
    """Return kind, flags and payload of the next frame."""
    head = exactly(connection, 9)
    return head[3], head[4], exactly(connection, int.from_bytes(head[:3], "big"))


def test_requests_with_invalid_utf_8_headers_cannot_flood_the_broker_log() -> None:
    """The library gRPC logs each such header with a traceback."""
    stream = io.StringIO()
    # The time stands still, so each place in the code has one line, and one for the rest.
    handler = LogHandler(stream, ManualClock())
    handler.setFormatter(TextFormatter())
    headers = [(b"k%d" % number, b"\xff\xfe%d" % number) for number in range(100)]
    with (
        counted_early(handler, GRPC_LOGGER) as (_logger, made),
        Emulator() as emulator,
        connected(emulator) as connection,
    ):
        for call in range(1, 20, 2):
            connection.sendall(http2.call(call, *headers) + http2.empty_message(call))
        ended = 0
        while ended < 10:
            kind, flags, _ = next_frame(connection)
            ended += kind == http2.HEADERS and flags & http2.END_STREAM
    handler.close()
    assert 1 <= len(made) <= 20
    lines = stream.getvalue().splitlines()
    # gRPC logs 1,000 headers, from a few places.
    assert 1 <= len(lines) <= 20
    assert sum(int(line.split()[1]) for line in lines if " more of: " in line) > 900
    assert all(line.startswith("ERROR ") and len(line) < 700 for line in lines)


# Configures the log as the broker does, and logs what grpcio logs for 100 wrong headers.
PROGRAM = """
import logging
from pullstream_emulator.log_output import GRPC_LOGGER, configure

configure("info", "text")
logger = logging.getLogger(GRPC_LOGGER)
made = []
logger.addFilter(lambda record: not made.append(record))
for _ in range(100):
    logger.exception("Invalid encoding on %s", b"x")
print(len(made))
"""


def test_the_broker_log_counts_invalid_utf_8_headers_without_creating_log_records() -> None:
    """The records would take most of the time of the event loop, while other calls wait."""
    ran = run_command([sys.executable, "-c", PROGRAM], check=True)
    assert int(ran.stdout) <= 2, ran.stderr
    assert "99 more of: Invalid encoding" in ran.stderr


def test_the_broker_announces_limits_of_streams_and_metadata_to_each_grpc_connection() -> None:
    with Emulator() as emulator, connected(emulator) as connection:
        kind, _, payload = next_frame(connection)
        assert kind == http2.SETTINGS
        settings = dict(struct.iter_unpack(">HI", payload))
    assert settings[http2.MAX_CONCURRENT_STREAMS] == MAX_STREAMS_PER_CONNECTION
    assert settings[http2.MAX_HEADER_LIST_SIZE] == MAX_METADATA_BYTES
