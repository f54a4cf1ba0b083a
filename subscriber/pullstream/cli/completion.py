"""Shell completion of the names of resources, which the server is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from pullstream_protocol import names

from .context import CliContext

F = TypeVar("F", bound=Callable[..., Any])

# Longest wait for the server, in seconds. A person waits for the shell meanwhile.
TIMEOUT = 2.0

# Most names that are asked for.
MAX_NAMES = 1000

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
ListCall = Callable[..., Iterable[Any]]


def _completion(
    collection: str, call_of: Callable[[CliContext], ListCall], parent: str = "project"
) -> Complete:
    """Return the completion of names of one kind.

    Args:
        collection: The kind in a full name, such as "topics".
        call_of: Returns the client's call that lists the resources.
        parent: The call's keyword for the project.
    """

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        session = ctx.find_object(CliContext) or CliContext()
        try:
            # The clients are closed at the end of the scope.
            with ctx.scope():
                found = _names(session, incomplete, call_of(session), parent)
        except Exception:
            # The project or the server is unknown. An error would disturb the command line.
            return []
        return [CompletionItem(each) for each in sorted(found) if each.startswith(incomplete)]

    complete.__doc__ = f"Return the {collection} whose names begin with a text."
    return complete


def _names(session: CliContext, incomplete: str, call: ListCall, parent: str) -> list[str]:
    """Return ids, or full names if the text begins with a project."""
    is_full = incomplete.startswith("projects/")
    if is_full and incomplete.count("/") == 1:
        return []
    project = "/".join(incomplete.split("/")[:2]) if is_full else session.project_path
    listed = call(request={parent: project, "page_size": MAX_NAMES}, timeout=TIMEOUT)
    return [each.name if is_full else names.short_id(each.name) for each in listed]


topics = _completion("topics", lambda session: session.topics().list_topics)
subscriptions = _completion(
    "subscriptions", lambda session: session.subscriber().list_subscriptions
)
snapshots = _completion("snapshots", lambda session: session.subscriber().list_snapshots)
schemas = _completion("schemas", lambda session: session.schemas().list_schemas, "parent")


def several(parameter: str, metavar: str, complete: Complete) -> Callable[[F], F]:
    """Return the argument of a command for one name or more.

    Args:
        parameter: The parameter of the command's function.
        metavar: One name in the help, such as "TOPIC".
        complete: The completion of one name.
    """
    return click.argument(
        parameter, metavar=f"{metavar}...", nargs=-1, required=True, shell_complete=complete
    )
