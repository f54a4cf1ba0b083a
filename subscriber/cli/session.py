"""What all commands share: which project, which server, and the form of the output."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import click

from subscriber.client import SubscriberClient
from subscriber.feeds.client import FeedsClient
from subscriber.service import ServiceClient
from subscriber.topics import TopicAdminClient

from .output import Output

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=ServiceClient)

# In this order; the second is Google's own.
PROJECT_VARIABLES = ("PUBSUB_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")


@dataclass
class Session:
    """The settings of one run."""

    project: str | None = None
    endpoint: str | None = None
    json: bool = False

    @property
    def output(self) -> Output:
        return Output(as_json=self.json)

    @property
    def project_path(self) -> str:
        """`projects/P`; a usage error if nobody said which."""
        project = self.project or next(
            (os.environ[name] for name in PROJECT_VARIABLES if os.environ.get(name)), None
        )
        if project is None:
            raise click.UsageError(
                "Which project? Pass --project, set PUBSUB_PROJECT_ID, or give the full name."
            )
        return f"projects/{project.removeprefix('projects/')}"

    def full_name(self, collection: str, name: str) -> str:
        """`projects/P/<collection>/ID` for an id; a full name is returned as it is."""
        if name.startswith("projects/"):
            return name
        return f"{self.project_path}/{collection}/{name}"

    def topics(self) -> TopicAdminClient:
        """A client that is closed when the command ends."""
        return self._open(TopicAdminClient)

    def feeds(self) -> FeedsClient:
        """A client that is closed when the command ends."""
        return self._open(FeedsClient)

    def subscriptions(self) -> SubscriberClient:
        """A client that is closed when the command ends."""
        return self._open(SubscriberClient)

    def _open(self, client: type[C]) -> C:
        try:
            opened = client(endpoint=self.endpoint)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        click.get_current_context().with_resource(opened)
        return opened


pass_session = click.make_pass_decorator(Session, ensure=True)


def session_options(command: F) -> F:
    """Add the options that make the session; they may stand before or after a command's name."""
    for option in (
        _option("--json", is_flag=True, help="Print one JSON object a line."),
        _option("--endpoint", metavar="HOST:PORT", help="Server. [env: PUBSUB_EMULATOR_HOST]"),
        _option("--project", help=f"Project of short names. [env: {', '.join(PROJECT_VARIABLES)}]"),
    ):
        command = option(command)
    return command


def _remember(ctx: click.Context, param: click.Parameter, value: str | bool | None) -> None:
    session = ctx.ensure_object(Session)
    # What was not said again after the command's name stays as it was before it.
    if value:
        setattr(session, str(param.name), value)


_option = partial(click.option, expose_value=False, callback=_remember)
