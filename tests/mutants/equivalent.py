"""Mutants that behave like the original, each with the reason."""

from __future__ import annotations

# By module, changed line of the original, and the same line of the mutant.
EQUIVALENT: dict[tuple[str, str, str], str] = {}
