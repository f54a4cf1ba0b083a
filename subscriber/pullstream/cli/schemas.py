"""`pullstream schemas`: schemas of topics, and their revisions."""

from __future__ import annotations

from typing import BinaryIO

import click

from pullstream_protocol.names import project_path

from . import completion
from .context import CliContext, context_options, pass_session
from .groups import CommandGroup

_TYPES = {"avro": "AVRO", "protobuf": "PROTOCOL_BUFFER"}
_COLUMNS = ("name", "type", "revisionId", "revisionCreateTime")

_type = click.option(
    "--type", "kind", required=True, type=click.Choice(list(_TYPES)), help="Type of the schema."
)
_file = click.option(
    "--file", required=True, type=click.File("rb"), help="File with the definition; - for stdin."
)


@click.group("schemas", cls=CommandGroup)
@context_options
def schemas() -> None:
    """Manage schemas, which topics check their messages against."""


@schemas.command("create")
@click.argument("schema", shell_complete=completion.schemas)
@_type
@_file
@pass_session
def create(session: CliContext, schema: str, kind: str, file: BinaryIO) -> None:
    """Create a schema."""
    name = session.full_name("schemas", schema)
    _, project, _, schema_id = name.split("/", 3)
    made = session.schemas().create_schema(
        parent=project_path(project), schema_id=schema_id, schema=_definition(kind, file)
    )
    session.output.done(made.name, "created")


@schemas.command("commit")
@click.argument("schema", shell_complete=completion.schemas)
@_type
@_file
@pass_session
def commit(session: CliContext, schema: str, kind: str, file: BinaryIO) -> None:
    """Add a revision to a schema; it must be compatible with the older ones."""
    name = session.full_name("schemas", schema)
    made = session.schemas().commit_schema(
        name=name, schema={"name": name, **_definition(kind, file)}
    )
    _show_revision(session, name, made.revision_id)


@schemas.command("rollback")
@click.argument("schema", shell_complete=completion.schemas)
@click.option("--revision", required=True, help="The revision to copy.")
@pass_session
def rollback(session: CliContext, schema: str, revision: str) -> None:
    """Add a revision that is a copy of an older one."""
    name = session.full_name("schemas", schema)
    made = session.schemas().rollback_schema(name=name, revision_id=revision)
    _show_revision(session, name, made.revision_id)


@schemas.command("validate")
@_type
@_file
@pass_session
def validate(session: CliContext, kind: str, file: BinaryIO) -> None:
    """Check a definition without storing it."""
    session.schemas().validate_schema(parent=session.project_path, schema=_definition(kind, file))
    session.output.result({"valid": True}, "valid")


@schemas.command("validate-message")
@click.argument("schema", shell_complete=completion.schemas)
@click.option("--encoding", type=click.Choice(["json", "binary"]), default="json")
@click.option("--file", type=click.File("rb"), required=True, help="The message; - for stdin.")
@pass_session
def validate_message(session: CliContext, schema: str, encoding: str, file: BinaryIO) -> None:
    """Check a message against a schema without publishing it."""
    name = session.full_name("schemas", schema)
    session.schemas().validate_message(
        {
            "parent": project_path(name.split("/")[1]),
            "name": name,
            "encoding": encoding.upper(),
            "message": file.read(),
        }
    )
    session.output.result({"valid": True}, "valid")


@schemas.command("list")
@pass_session
def list_(session: CliContext) -> None:
    """List the schemas of the project."""
    found = session.schemas().list_schemas(parent=session.project_path, retry=None)
    session.output.resources(_COLUMNS, found)


@schemas.command("revisions")
@click.argument("schema", shell_complete=completion.schemas)
@pass_session
def revisions(session: CliContext, schema: str) -> None:
    """List the revisions of a schema, the newest first."""
    name = session.full_name("schemas", schema)
    found = session.schemas().list_schema_revisions(name=name, retry=None)
    session.output.resources(_COLUMNS, found)


@schemas.command("describe")
@click.argument("schema", shell_complete=completion.schemas)
@pass_session
def describe(session: CliContext, schema: str) -> None:
    """Show a schema, or one revision of it: SCHEMA@REVISION."""
    name = session.full_name("schemas", schema)
    session.output.resource(session.schemas().get_schema(name=name, retry=None))


@schemas.command("delete")
@completion.several("schema_names", "SCHEMA", completion.schemas)
@pass_session
def delete(session: CliContext, schema_names: tuple[str, ...]) -> None:
    """Delete schemas, or single revisions: SCHEMA@REVISION."""
    client = session.schemas()
    for each in schema_names:
        name = session.full_name("schemas", each)
        if "@" in each:
            client.delete_schema_revision(name=name)
        else:
            client.delete_schema(name=name)
        session.output.done(name, "deleted")


def _show_revision(session: CliContext, name: str, revision: str) -> None:
    session.output.result({"name": name, "revisionId": revision}, f"{name}: revision {revision}")


def _definition(kind: str, file: BinaryIO) -> dict[str, str]:
    try:
        text = file.read().decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--file: the definition is not UTF-8: {error}") from error
    return {"type": _TYPES[kind], "definition": text}
