"""Output of the broker's log: as text for people, or as JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Literal

LogFormat = Literal["text", "json"]

LEVELS = ("debug", "info", "warning", "error")
FORMATS: tuple[LogFormat, ...] = ("text", "json")

# The attribute of a log record with further fields, for JSON.
FIELDS = "pullstream_fields"

_LOGGER = "pullstream"


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


def configure(level: str, form: LogFormat) -> None:
    """Write the log to standard error. Other libraries log warnings and errors only.

    Args:
        level: One of LEVELS: the lowest level of the broker's records.
        form: The form of the lines.
    """
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=max(logging.WARNING, _number(level)), force=True)
    logging.getLogger(_LOGGER).setLevel(_number(level))


def _number(level: str) -> int:
    number: int = getattr(logging, level.upper())
    return number
