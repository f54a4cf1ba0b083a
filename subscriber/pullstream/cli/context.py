"""Settings that all commands share: project, server, credentials and form of the output."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from pullstream.client import SubscriberClient
from pullstream.publisher import PublisherClient, PublisherOptions
from pullstream.rpc.base_client import BaseClient
from pullstream.rpc.endpoint import (
    CA_VARIABLE,
    EMULATOR_VARIABLE,
    TOKEN_VARIABLE,
    BrokerArguments,
    read_token,
)
from pullstream.schemas import SchemaServiceClient
from pullstream.topics import TopicAdminClient

from .groups import ConnectionOption
from .output import Output

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=BaseClient)

# Checked in this order. The second is Google's.
PROJECT_VARIABLES = ("PUBSUB_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")


@dataclass
class CliContext:
    """The settings of one run.

    Attributes:
        names: The full names of the resources that the command has used.
    """

    project: str | None = None
    endpoint: str | None = None
    token: str | None = None
    token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    json: bool = False
    names: list[str] = field(default_factory=list)

    @property
    def output(self) -> Output:
        """The form of the output, JSON if `--json` was given."""
        return Output(as_json=self.json)

    @property
    def project_path(self) -> str:
        """`projects/P`; raises a usage error if no project is set."""
        project = self.project or next(
            (os.environ[name] for name in PROJECT_VARIABLES if os.environ.get(name)), None
        )
        if project is None:
            raise click.UsageError(
                "No project is set. Pass --project, set PUBSUB_PROJECT_ID, or give the full name."
            )
        return f"projects/{project.removeprefix('projects/')}"

    def full_name(self, collection: str, name: str) -> str:
        """Return `projects/P/<collection>/ID` for an id; return a full name unchanged."""
        full = name if name.startswith("projects/") else f"{self.project_path}/{collection}/{name}"
        self.names.append(full)
        return full

    def each(
        self, collection: str, names: Iterable[str], act: Callable[[str], object], done: str
    ) -> None:
        """Call `act` with the full name of each resource, and print what is done."""
        for name in names:
            full = self.full_name(collection, name)
            act(full)
            self.output.done(full, done)

    @property
    def connection(self) -> BrokerArguments:
        """The connection arguments of a client.

        Raises:
            UsageError: There are two tokens, or the token file contains none.
        """
        token = self.token
        if self.token_file is not None:
            if token is not None:
                raise click.UsageError("--token and --token-file exclude each other: give one.")
            try:
                token = read_token(self.token_file)
            except ValueError as error:
                raise click.UsageError(f"--token-file {error}.") from error
        return {
            "endpoint": self.endpoint,
            "token": token,
            "ca": self.ca,
            "cert": self.cert,
            "key": self.key,
        }

    def topics(self) -> TopicAdminClient:
        """Return a client that is closed when the command ends."""
        return self._open(TopicAdminClient)

    def schemas(self) -> SchemaServiceClient:
        """Return a client that is closed when the command ends."""
        return self._open(SchemaServiceClient)

    def publisher(self, options: PublisherOptions) -> PublisherClient:
        """Return a client that is closed when the command ends."""
        return self._open(partial(PublisherClient, publisher_options=options))

    def subscriber(self) -> SubscriberClient:
        """Return a client that is closed when the command ends."""
        return self._open(SubscriberClient)

    def _open(self, client: Callable[..., C]) -> C:
        try:
            opened = client(**self.connection)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        click.get_current_context().with_resource(opened)
        return opened


def context_options(command: F) -> F:
    """Add the common options, which may be given before or after a command's name."""
    for option in (
        _option(
            "--json",
            cls=click.Option,
            is_flag=True,
            help="Print one JSON object per line; the last one has `error` after a failure.",
        ),
        _option("--key", metavar="FILE", help="Private key of --cert, as PEM."),
        _option("--cert", metavar="FILE", help="Client certificate, as PEM."),
        _option(
            "--ca",
            metavar="FILE",
            help="Certificate of the server, or of its CA, as PEM. Enables TLS. "
            f"[env: {CA_VARIABLE}]",
        ),
        _option("--token-file", metavar="FILE", help="File with the token."),
        _option(
            "--token",
            help="Token for the server; other users can see it in the process list. "
            f"[env: {TOKEN_VARIABLE}]",
        ),
        _option("--endpoint", metavar="HOST:PORT", help=f"Server. [env: {EMULATOR_VARIABLE}]"),
        _option("--project", help=f"Project of short names. [env: {', '.join(PROJECT_VARIABLES)}]"),
    ):
        command = option(command)
    return command


_pass_session = click.make_pass_decorator(CliContext, ensure=True)


def pass_session(
    command: Callable[Concatenate[CliContext, P], R],
) -> Callable[P, R]:
    """Pass the settings of the run to a command, which gets the common options."""
    return context_options(_pass_session(command))


def _remember(ctx: click.Context, param: click.Parameter, value: str | bool | None) -> None:
    session = ctx.ensure_object(CliContext)
    name = str(param.name)
    if value == "" and name in _NEVER_EMPTY:
        # A script's variable is unset. Ignoring the option would mean no token, or no TLS.
        raise click.BadParameter("it must not be empty.", ctx, param)
    # An option that is not repeated after the command's name keeps its value from before it.
    if value:
        setattr(session, name, value)


_NEVER_EMPTY = ("token", "token_file", "ca", "cert", "key")
_option = partial(click.option, cls=ConnectionOption, expose_value=False, callback=_remember)
