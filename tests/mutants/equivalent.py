"""Mutants that behave like the original, each with the reason."""

from __future__ import annotations

# By module, changed line of the original, and the same line of the mutant.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "streaming/failed_key.py",
        "self._last_delay = 0.0",
        "self._last_delay = 0.0 + 1",
    ): "A wait for a delay of one second is shorter than MIN_WAIT.",
    (
        "streaming/failed_key.py",
        "return first is not None and position > first",
        "return first is not None and position >= first",
    ): "No message is missing and held, and a message that arrives is no longer missing.",
}
