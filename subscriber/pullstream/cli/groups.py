"""Commands and groups of commands: help in sections, and suggestions for wrong words."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

# The words of other programs, each with the commands that may be meant. A group suggests the
# commands that it has.
_SYNONYMS = {
    "add": ("create", "put", "topics create"),
    "browse": ("peek",),
    "broker": ("emulator",),
    "consume": ("subscribe", "fetch"),
    "dead-letters": ("redrive",),
    "del": ("delete", "topics delete", "subscriptions delete"),
    "dlq": ("redrive",),
    "get": ("describe", "fetch"),
    "info": ("describe", "get", "top"),
    "look": ("peek",),
    "ls": ("list", "topics list", "subscriptions list"),
    "new": ("create", "put", "topics create"),
    "produce": ("publish",),
    "pub": ("publish",),
    "read": ("fetch", "peek"),
    "receive": ("fetch", "subscribe"),
    "remove": ("delete", "topics delete", "subscriptions delete"),
    "replay": ("seek",),
    "rewind": ("seek",),
    "rm": ("delete", "topics delete", "subscriptions delete"),
    "run": ("worker", "subscribe"),
    "send": ("publish",),
    "serve": ("emulator",),
    "server": ("emulator",),
    "set": ("update", "put"),
    "show": ("describe", "get", "peek"),
    "start": ("emulator",),
    "stats": ("top", "state"),
    "status": ("top", "state"),
    "stream": ("subscribe", "watch", "follow"),
    "sub": ("subscribe", "subscriptions"),
    "subs": ("subscriptions", "subscribe"),
    "tail": ("subscribe", "watch", "follow"),
}


class ConnectionOption(click.Option):
    """An option of the section "Connection", which is the last one of a command's help."""


class Command(click.Command):
    """A command whose help ends with the options of the connection."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command, then those of the connection."""
        _write_options("Options", ctx, formatter, connection=False)
        _write_options("Connection", ctx, formatter, connection=True)


command = partial(click.command, cls=Command)


def _write_options(
    heading: str, ctx: click.Context, formatter: click.HelpFormatter, *, connection: bool
) -> None:
    rows = [
        record
        for parameter in ctx.command.get_params(ctx)
        if isinstance(parameter, click.Option)
        and isinstance(parameter, ConnectionOption) is connection
        if (record := parameter.get_help_record(ctx)) is not None
    ]
    if rows:
        with formatter.section(heading):
            formatter.write_dl(rows)


class CommandGroup(click.Group):
    """A group whose help is never truncated, and which suggests a command for a mistyped one.

    Args:
        sections: The commands of each section of the help, in order. Commands that are in no
            section follow under "More". None: one list.
    """

    command_class = Command

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
            meant = self._meant_by(ctx, args[0])
            if meant:
                raise click.UsageError(
                    f"No such command {args[0]!r}. Did you mean {' or '.join(meant)}?", ctx
                ) from error
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.6)
            # Newer versions of click suggest commands themselves.
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error

    def _meant_by(self, ctx: click.Context, word: str) -> list[str]:
        """Return the group's commands that a word of another program may stand for."""
        known = self.list_commands(ctx)
        return [
            repr(meant) for meant in _SYNONYMS.get(word, ()) if meant.partition(" ")[0] in known
        ]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the group, its commands, and the options of the connection."""
        _write_options("Options", ctx, formatter, connection=False)
        self.format_commands(ctx, formatter)
        _write_options("Connection", ctx, formatter, connection=True)

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
