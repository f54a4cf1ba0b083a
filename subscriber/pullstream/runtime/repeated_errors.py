"""Logs the errors of a user's functions: each place once with its traceback, and then counts."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from traceback import format_exception_only, walk_tb

from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

# Seconds between two reports of errors of one place.
REPORT_EVERY = 10.0

# A place without an error for this many seconds is logged with its traceback again.
FORGET_AFTER = 600.0

# Number of places that are remembered; the latest ones.
MAX_PLACES = 100

_Place = tuple[object, ...]


@dataclass
class _Repeats:
    """The errors of one place since its last report.

    Attributes:
        reported_at: Time of the last report.
        last_at: Time of the last error.
        count: Number of errors without a report.
        last: Text of the last error.
    """

    reported_at: float
    last_at: float
    count: int = 0
    last: str = ""


class RepeatedErrors:
    """Logs errors of functions that are called again and again. Any thread may call it.

    A place is the type of an error and the lines of its traceback. Its first error is logged with
    the traceback. Later ones are counted, and the number is logged with the next error after
    REPORT_EVERY seconds. Without this, a message that fails each time would write a traceback for
    each delivery.

    Args:
        log: Takes the reports.
        clock: Measures time.
    """

    def __init__(self, log: logging.Logger, clock: Clock = SYSTEM_CLOCK) -> None:
        self._log = log
        self._clock = clock
        # Reentrant, because a signal handler may report an error on the thread that it interrupts.
        self._lock = threading.RLock()
        # By place, in the order of the last errors.
        self._places: OrderedDict[_Place, _Repeats] = OrderedDict()

    def report(self, error: BaseException, text: str) -> None:
        """Log an error, or count it.

        Args:
            error: The error.
            text: What happened.
        """
        place = _place_of(error)
        now = self._clock.monotonic()
        with self._lock:
            repeats = self._places.get(place)
            if repeats is not None and now - repeats.last_at < FORGET_AFTER:
                self._places.move_to_end(place)
                repeats.last_at = now
                repeats.count += 1
                repeats.last = f"{text}: {_text_of(error)}"
                if now - repeats.reported_at < REPORT_EVERY:
                    return
                summary = self._summary(repeats, now)
            else:
                summary = None
                self._places[place] = _Repeats(now, now)
                if len(self._places) > MAX_PLACES:
                    self._places.popitem(last=False)
        if summary is None:
            self._log.error("%s", text, exc_info=error)
        else:
            self._log.error("%s", summary)

    def report_rest(self) -> None:
        """Log the numbers that were not reported, because no more errors follow."""
        now = self._clock.monotonic()
        with self._lock:
            places, self._places = self._places, OrderedDict()
            summaries = [self._summary(each, now) for each in places.values() if each.count]
        for summary in summaries:
            self._log.error("%s", summary)

    def _summary(self, repeats: _Repeats, now: float) -> str:
        """Return the report of the counted errors, and begin to count from 0."""
        count, seconds = repeats.count, now - repeats.reported_at
        repeats.count, repeats.reported_at = 0, now
        return f"{repeats.last} (with the traceback above, {count} times in {seconds:.0f} s)"


def _text_of(error: BaseException) -> str:
    # In contrast to `str`, this works for an error whose own text cannot be made.
    return "".join(format_exception_only(error)).strip()


def _place_of(error: BaseException) -> _Place:
    lines = walk_tb(error.__traceback__)
    return (type(error), *((frame.f_code, line) for frame, line in lines))
