"""Output of the broker's log: as text for people, or as JSON for programs."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, TextIO

from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.due_thread import DueThread
from pullstream_protocol.printable import printable

LogFormat = Literal["text", "json"]

LEVELS = ("debug", "info", "warning", "error")
FORMATS: tuple[LogFormat, ...] = ("text", "json")

# The attribute of a log record with further fields, for JSON.
FIELDS = "pullstream_fields"

_LOGGER = "pullstream"

# The logger of grpcio's compiled code, which logs each header that is not UTF-8, with a traceback.
GRPC_LOGGER = "grpc._cython.cygrpc"

# Seconds between two lines of one place in a library's code, and the most characters of its text.
LIBRARY_INTERVAL = 1.0
MAX_LIBRARY_TEXT = 300


class TextFormatter(logging.Formatter):
    """Formats each record as one line, so that no text of a client can forge another record.

    The lines of a traceback are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the lines of a traceback."""
        line = f"{record.levelname} {printable(record.getMessage())}"
        if record.exc_info:
            traceback = self.formatException(record.exc_info).split("\n")
            line = "\n  ".join((line, *map(printable, traceback)))
        return line


class JsonFormatter(logging.Formatter):
    """Formats each record as one line with a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, timezone.utc)
        content = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps(content)


@dataclass
class _Place:
    """A place in a library that has logged.

    Attributes:
        next_line_at: Time of the clock from which the place may write another line.
        suppressed: Records since the last line.
        record: The last record.
    """

    next_line_at: float
    suppressed: int
    record: logging.LogRecord


if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:
    # Python 3.10 has no parameter for it.
    _StreamHandler = logging.StreamHandler


class LogHandler(_StreamHandler):
    """Writes the records of the broker, and few of the libraries'.

    Any client can make a library log, for example by a header that is not UTF-8 or by a connection
    that breaks. Therefore each place in a library's code writes at most one line per second,
    shortened, and then a line with the number of suppressed records. Tracebacks of libraries are
    written at level DEBUG only.

    Any thread may call `handle`. The handler's lock guards the places. The thread `pullstream-log`,
    which starts with the first suppressed record, writes the numbers.

    Args:
        stream: Where to write.
        clock: Measures the second.
    """

    def __init__(self, stream: TextIO, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(stream)
        self._clock = clock
        self._places: dict[tuple[str, str, int], _Place] = {}
        self._reporter: DueThread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it."""
        if record.name.partition(".")[0] == _LOGGER:
            super().emit(record)
            return
        now = self._clock.monotonic()
        place = self._places.get(key := (record.name, record.pathname, record.lineno))
        if place is None or (place.next_line_at <= now and not place.suppressed):
            self._places[key] = _Place(now + LIBRARY_INTERVAL, 0, record)
            self._write(record)
            return
        place.record = record
        self._suppress(place)
        if place.next_line_at <= now:
            # The thread is late.
            self._report(now)

    def count(self, logger: str, text: object) -> bool:
        """Count an error for which no record exists yet.

        Args:
            logger: The name of the library's logger.
            text: The text without its values.

        Returns:
            False if no place has written this text in the last second: the caller logs it.
        """
        now = self._clock.monotonic()
        # This is called for each header. `_guard` would take as long as the rest.
        self.acquire()
        try:
            for place in self._places.values():
                known = place.record
                if now < place.next_line_at and known.msg == text and known.name == logger:
                    self._suppress(place)
                    return True
        finally:
            self.release()
        return False

    def count_early(self, logger: logging.Logger) -> None:
        """Make no record where `logger.exception` would log what this handler only counts.

        A record takes much longer than the rest of the work on a wrong header, and a call can have
        some 200 of them. Other calls wait for this work.
        """

        def exception(text: object, *values: object, **options: Any) -> None:
            if not self.count(logger.name, text):
                logger.error(text, *values, **{"exc_info": True, "stacklevel": 2, **options})

        logger.exception = exception  # type: ignore[assignment, method-assign]

    def close(self) -> None:
        """Write the numbers of suppressed records, and close the handler."""
        self._report(math.inf)
        super().close()

    def _suppress(self, place: _Place) -> None:
        place.suppressed += 1
        if place.suppressed == 1:
            self._wake_reporter()

    def _wake_reporter(self) -> None:
        if self._reporter is None:
            self._reporter = DueThread(
                self._clock, self._next_report, self._report_due, name="pullstream-log"
            )
            self._reporter.start()
        self._reporter.wake()

    def _next_report(self) -> float | None:
        with self._guard():
            return min(
                (p.next_line_at for p in self._places.values() if p.suppressed), default=None
            )

    def _report_due(self) -> None:
        self._report(self._clock.monotonic())

    def _report(self, now: float) -> None:
        with self._guard():
            for place in self._places.values():
                if place.suppressed and place.next_line_at <= now:
                    count, place.suppressed = place.suppressed, 0
                    place.next_line_at = now + LIBRARY_INTERVAL
                    self._write(place.record, f"{count} more of: ")

    def _write(self, record: logging.LogRecord, prefix: str = "") -> None:
        """Write a record of a library. An error in its text never reaches the library's code."""
        try:
            super().emit(_shortened(record, prefix))
        except Exception:
            self.handleError(record)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()


def _shortened(record: logging.LogRecord, prefix: str) -> logging.LogRecord:
    """Return a record of a library with a short text in one line."""
    text = printable(prefix + record.getMessage(), MAX_LIBRARY_TEXT)
    error = None
    if record.exc_info and record.exc_info[0] is not None:
        if logging.getLogger(_LOGGER).isEnabledFor(logging.DEBUG):
            error = record.exc_info
        else:
            problem = printable(str(record.exc_info[1]), MAX_LIBRARY_TEXT)
            text = f"{text} ({record.exc_info[0].__name__}: {problem})"
    shortened = logging.makeLogRecord(record.__dict__)
    shortened.msg, shortened.args, shortened.exc_info = text, None, error
    return shortened


def configure(level: str, form: LogFormat) -> None:
    """Write the log to standard error. Other libraries log warnings and errors only.

    Args:
        level: One of LEVELS: the lowest level of the broker's records.
        form: The form of the lines.
    """
    handler = LogHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.count_early(logging.getLogger(GRPC_LOGGER))
    logging.basicConfig(handlers=[handler], level=max(logging.WARNING, _number(level)), force=True)
    logging.getLogger(_LOGGER).setLevel(_number(level))


def _number(level: str) -> int:
    number: int = getattr(logging, level.upper())
    return number
