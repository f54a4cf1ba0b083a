"""`pullstream routers`: put, list, get, delete."""

from __future__ import annotations

import click

from .context import CliContext, context_options, pass_session
from .groups import CommandGroup

_COLUMNS = ("name", "source", "dest", "filter", "forwarded", "position")


@click.group("routers", cls=CommandGroup)
@context_options
def routers() -> None:
    """Manage routers, which copy the records of one feed to another."""


@routers.command("put")
@click.argument("router")
@click.option("--source", required=True, help="The topic to copy from.")
@click.option("--dest", required=True, help="The topic to copy to.")
@click.option("--message-filter", default="", help='Example: hasPrefix(attributes.tag, "public:")')
@click.option("--preserve-node/--no-preserve-node", default=True, help="Keep the attribute node.")
@click.option("--preserve-tag/--no-preserve-tag", default=True, help="Keep the attribute tag.")
@click.option("--create-dest/--no-create-dest", default=True, help="Create a missing destination.")
@click.option("--allow-cycle", is_flag=True, help="Allow the router to close a cycle.")
@pass_session
def put(
    session: CliContext,
    router: str,
    source: str,
    dest: str,
    message_filter: str,
    preserve_node: bool,
    preserve_tag: bool,
    create_dest: bool,
    allow_cycle: bool,
) -> None:
    """Create a router or change its settings. It copies records that are appended from now on."""
    made = session.subscriber().routers.put(
        {
            "name": session.full_name("routers", router),
            "source": session.full_name("topics", source),
            "dest": session.full_name("topics", dest),
            "filter": message_filter,
            "preserve_node": preserve_node,
            "preserve_tag": preserve_tag,
            "create_dest": create_dest,
            "allow_cycle": allow_cycle,
        }
    )
    session.output.done(made.name, "created" if made.created else "updated")


@routers.command("list")
@click.option("--source", help="List only routers that copy from this topic.")
@click.option("--dest", help="List only routers that copy to this topic.")
@pass_session
def list_(session: CliContext, source: str | None, dest: str | None) -> None:
    """List the routers of the project."""
    found = session.subscriber().routers.list(
        session.project_path,
        source=source and session.full_name("topics", source),
        dest=dest and session.full_name("topics", dest),
        retry=None,
    )
    session.output.resources(_COLUMNS, found)


@routers.command("get")
@click.argument("router")
@pass_session
def get(session: CliContext, router: str) -> None:
    """Show a router's settings and its position."""
    name = session.full_name("routers", router)
    session.output.resource(session.subscriber().routers.get(name, retry=None))


@routers.command("delete")
@click.argument("router_names", metavar="ROUTER...", nargs=-1, required=True)
@pass_session
def delete(session: CliContext, router_names: tuple[str, ...]) -> None:
    """Delete routers. The copied records stay."""
    session.each("routers", router_names, session.subscriber().routers.delete, "deleted")
