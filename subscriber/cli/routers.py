"""`pullstream routers`: put, list, get, delete."""

from __future__ import annotations

import click

from .session import Session, pass_session, session_options

_COLUMNS = ("name", "source", "dest", "filter", "forwarded", "position")


@click.group("routers")
@session_options
def routers() -> None:
    """Manage routers, which copy what is appended to one feed to another."""


@routers.command("put")
@click.argument("router")
@click.option("--source", required=True, help="The topic to copy from.")
@click.option("--dest", required=True, help="The topic to copy to.")
@click.option("--message-filter", default="", help='Such as: hasPrefix(attributes.tag, "public:")')
@click.option("--preserve-node/--no-preserve-node", default=True, help="Keep the attribute node.")
@click.option("--preserve-tag/--no-preserve-tag", default=True, help="Keep the attribute tag.")
@click.option("--create-dest/--no-create-dest", default=True, help="Make a missing destination.")
@click.option("--allow-cycle", is_flag=True, help="It may close a cycle.")
@session_options
@pass_session
def put(
    session: Session,
    router: str,
    source: str,
    dest: str,
    message_filter: str,
    preserve_node: bool,
    preserve_tag: bool,
    create_dest: bool,
    allow_cycle: bool,
) -> None:
    """Make a router, or give it other settings. It copies what is appended from now on."""
    made = session.feeds().put_router(
        router={
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
@click.option("--source", help="Only those that copy from this topic.")
@click.option("--dest", help="Only those that copy to this topic.")
@session_options
@pass_session
def list_(session: Session, source: str | None, dest: str | None) -> None:
    """List the routers of the project."""
    found = session.feeds().list_routers(
        project=session.project_path,
        source=source and session.full_name("topics", source),
        dest=dest and session.full_name("topics", dest),
        retry=None,
    )
    session.output.resources(_COLUMNS, found)


@routers.command("get")
@click.argument("router")
@session_options
@pass_session
def get(session: Session, router: str) -> None:
    """Show a router's settings, and how far it has come."""
    name = session.full_name("routers", router)
    session.output.resource(session.feeds().get_router(name=name, retry=None))


@routers.command("delete")
@click.argument("router_names", metavar="ROUTER...", nargs=-1, required=True)
@session_options
@pass_session
def delete(session: Session, router_names: tuple[str, ...]) -> None:
    """Delete routers. What they have copied stays."""
    client = session.feeds()
    for name in router_names:
        router = session.full_name("routers", name)
        client.delete_router(name=router)
        session.output.done(router, "deleted")
