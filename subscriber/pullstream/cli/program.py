"""The program: its lazily loaded commands, and its exit codes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import NoReturn

import click

from pullstream_protocol import names
from pullstream_protocol.errors import (
    NotFound,
    PullstreamError,
    RpcError,
    code_name,
)
from pullstream_protocol.printable import printable

from .context import CliContext, context_options
from .groups import CommandGroup

GROUP = "pullstream.commands"

# The commands by section of the help.
SECTIONS = {
    "Messages": ("publish", "subscribe", "fetch", "pull", "peek", "ack", "nack", "redrive"),
    "Resources": ("topics", "subscriptions", "snapshots", "schemas", "seek", "purge"),
    "Feeds and channels": ("feeds", "routers", "watch", "follow", "listen"),
    "Programs": ("worker", "ingest", "receive"),
    "Tables": ("compact", "clean", "spool"),
    "Broker": ("emulator", "top", "faults", "clock"),
}

# The modules of the commands that have not the name of their module.
_MODULES = {"ack": "acknowledge", "nack": "acknowledge", "purge": "seek"}

# Found without a search of every installed distribution. The commands of the emulator and other
# packages are entry points of GROUP, so that the subscriber does not depend on them.
_OWN = {
    name: EntryPoint(name, f"pullstream.cli.{_MODULES.get(name, name)}:{name}", GROUP)
    for names in SECTIONS.values()
    for name in names
    if name != "emulator"
}

_INTERRUPTED = 130


class Commands(CommandGroup):
    """A group whose commands are entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the sorted names of the built-in commands and of installed extensions."""
        return sorted(_OWN.keys() | entry_points(group=GROUP).names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; built-in commands hide extensions of the same name."""
        if cmd_name in _OWN:
            return _load(_OWN[cmd_name])
        for entry_point in entry_points(group=GROUP, name=cmd_name):
            return _load(entry_point)
        return None


def _load(entry_point: EntryPoint) -> click.Command:
    try:
        command: click.Command = entry_point.load()
    except ImportError as error:
        # A package with a missing dependency must not break the commands of other packages.
        return _unloadable(entry_point.name, error)
    return command


def _unloadable(name: str, reason: ImportError) -> click.Command:
    def explain() -> NoReturn:
        raise click.ClickException(f"the command {name} cannot be loaded: {reason}") from reason

    return click.Command(
        name,
        callback=explain,
        help=f"(Cannot be loaded: {reason}.)",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _show_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        try:
            installed = version("pullstream")
        except PackageNotFoundError:
            installed = "(not installed: run from its source tree)"
        click.echo(f"pullstream {installed}")
        ctx.exit()


@click.command(
    cls=Commands, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]}
)
@context_options
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def program() -> None:
    """Publish to, subscribe to and manage Google Cloud Pub/Sub, or a broker with the same API.

    A topic or subscription is given by its full name, projects/P/topics/T, or by its id if the
    project is set. The options may also be given after the command.
    """


def run(args: Sequence[str] | None = None) -> int:
    """Run with these arguments (default: the process's) and return the exit code."""
    session = CliContext()
    try:
        result = program.main(args, prog_name="pullstream", standalone_mode=False, obj=session)
    except click.Abort:
        session.output.failure("interrupted", _INTERRUPTED)
        return _INTERRUPTED
    except click.ClickException as error:
        # The text may have names and texts of a server.
        shown = io.StringIO()
        error.show(shown)
        click.echo(printable(shown.getvalue(), keep_lines=True), nl=False, err=True)
        cause: str | None = getattr(error, "cause", None)
        session.output.failure(error.format_message(), error.exit_code, cause)
        return error.exit_code
    except PullstreamError as error:
        text = _describe(error, session)
        click.echo(f"Error: {text}", err=True)
        session.output.failure(text, 1)
        return 1
    except OSError as error:
        click.echo(f"Error: {printable(str(error))}", err=True)
        session.output.failure(str(error), 1)
        return 1
    # click returns the code of ctx.exit() here.
    return result if isinstance(result, int) else 0


def _describe(error: PullstreamError, session: CliContext) -> str:
    """Return one line for people: the status as Google writes it, and the server's text."""
    text = f"{code_name(error)}: {error.message}" if isinstance(error, RpcError) else str(error)
    if isinstance(error, NotFound):
        # The server names the id only, which a topic and a subscription may share.
        meant = [
            name
            for name in session.names
            if f"resource={names.short_id(name)})" in text and name not in text
        ]
        text = f"{text.rstrip('.')} ({', '.join(meant)})" if meant else text
    return printable(" ".join(text.split()))
