"""Modes of the console."""

from __future__ import annotations

from typing import Literal, TypeAlias

# "read-only" has no actions, such as publishing or purging.
ConsoleMode: TypeAlias = Literal["full", "read-only"]

CONSOLE_MODES: tuple[ConsoleMode, ...] = ("full", "read-only")
