"""The web pages at /console, which show the state of a running broker: docs/console.md.

The pages are files in `static`. They contain nothing about the broker: a page gets its content by
the documented HTTP calls, with the token that its user enters.
"""

from typing import Literal, TypeAlias

# "read-only" has no actions, such as publishing or purging.
ConsoleMode: TypeAlias = Literal["full", "read-only"]

CONSOLE_MODES: tuple[ConsoleMode, ...] = ("full", "read-only")
