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
    (
        "streaming/key_messages.py",
        "self._deliveries += 1",
        "self._deliveries += 1 + 1",
    ): "Only the order of the numbers counts.",
    (
        "streaming/key_messages.py",
        "self._old_below = 0",
        "self._old_below = 0 + 1",
    ): "The first failure calls mark_new before anything reads the result.",
    (
        "streaming/messages_on_hold.py",
        "self._idle.clear()",
        "pass",
    ): "No key fails after give_up.",
    (
        "streaming/messages_on_hold.py",
        "self._failures = 0",
        "self._failures = 0 + 1",
    ): "Only the order of the numbers counts.",
    (
        "streaming/messages_on_hold.py",
        "self._failures += 1",
        "self._failures += 1 + 1",
    ): "Only the order of the numbers counts.",
    (
        "streaming/sorted_keys.py",
        "_COMPACT_AFTER = 64",
        "_COMPACT_AFTER = 64 + 1",
    ): "The time of the compaction has no effect on the keys.",
    (
        "streaming/sorted_keys.py",
        "if self._start >= _COMPACT_AFTER and self._start * 2 >= len(keys):",
        "if self._start >= _COMPACT_AFTER and self._start * 2 > len(keys):",
    ): "The time of the compaction has no effect on the keys.",
}
