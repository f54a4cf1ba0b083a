"""Shell completion of the names of resources, which the server is asked for."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

from pullstream_protocol import names

from .context import CliContext

# Longest wait for the server, in seconds. A person waits for the shell meanwhile.
TIMEOUT = 2.0

# Most names that are asked for.
MAX_NAMES = 1000

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completion(collection: str, names_of: Callable[[CliContext, str], list[str]]) -> Complete:
    """Return the completion of names of one kind.

    Args:
        collection: The kind in a full name, such as "topics".
        names_of: Returns the full names of a project's resources.
    """

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        session = ctx.find_object(CliContext) or CliContext()
        try:
            # The clients are closed at the end of the scope.
            with ctx.scope():
                found = _names(session, incomplete, names_of)
        except Exception:
            # The project or the server is unknown. An error would disturb the command line.
            return []
        return [CompletionItem(each) for each in sorted(found) if each.startswith(incomplete)]

    complete.__doc__ = f"Return the {collection} whose names begin with a text."
    return complete


def _names(
    session: CliContext, incomplete: str, names_of: Callable[[CliContext, str], list[str]]
) -> list[str]:
    """Return ids, or full names if the text begins with a project."""
    if not incomplete.startswith("projects/"):
        return [names.short_id(each) for each in names_of(session, session.project_path)]
    _, project, *rest = incomplete.split("/")
    return names_of(session, f"projects/{project}") if rest else []


def _topics(session: CliContext, project: str) -> list[str]:
    request = {"project": project, "page_size": MAX_NAMES}
    return [topic.name for topic in session.topics().list_topics(request=request, timeout=TIMEOUT)]


def _subscriptions(session: CliContext, project: str) -> list[str]:
    request = {"project": project, "page_size": MAX_NAMES}
    listed = session.subscriber().list_subscriptions(request=request, timeout=TIMEOUT)
    return [subscription.name for subscription in listed]


def _snapshots(session: CliContext, project: str) -> list[str]:
    request = {"project": project, "page_size": MAX_NAMES}
    listed = session.subscriber().list_snapshots(request=request, timeout=TIMEOUT)
    return [snapshot.name for snapshot in listed]


def _schemas(session: CliContext, project: str) -> list[str]:
    request = {"parent": project, "page_size": MAX_NAMES}
    return [
        schema.name for schema in session.schemas().list_schemas(request=request, timeout=TIMEOUT)
    ]


topics = _completion("topics", _topics)
subscriptions = _completion("subscriptions", _subscriptions)
snapshots = _completion("snapshots", _snapshots)
schemas = _completion("schemas", _schemas)
