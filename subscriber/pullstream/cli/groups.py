"""Groups of commands: help in sections, and suggestions for mistyped commands."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import click


class CommandGroup(click.Group):
    """A group whose help is never truncated, and which suggests a command for a mistyped one.

    Args:
        sections: The commands of each section of the help, in order. Commands that are in no
            section follow under "More". None: one list.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Sequence[str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections or {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for an unknown one has a suggestion."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.6)
            # Newer versions of click suggest commands themselves.
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the whole first sentence of its help."""
        known = self.list_commands(ctx)
        listed = {name for names in self._sections.values() for name in names}
        sections = {
            title: [n for n in names if n in known] for title, names in self._sections.items()
        }
        unlisted = "More" if self._sections else "Commands"
        sections[unlisted] = [name for name in known if name not in listed]
        width = max((len(name) for name in known), default=0)
        for heading, names in sections.items():
            rows = [(name.ljust(width), self._first_sentence(ctx, name)) for name in names]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def _first_sentence(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(limit=1000)
