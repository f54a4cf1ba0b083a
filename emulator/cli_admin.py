"""`pullstream faults` and `pullstream clock`: administration of a broker that runs elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import click

from .admin.admin import PREFIX
from .faults.request import FaultRequest

Command = Callable[..., Any]

_TIMEOUT = 30.0


class _Client:
    """Of one broker's administration."""

    def __init__(self, endpoint: str, token: str | None) -> None:
        self._address = endpoint if "://" in endpoint else f"http://{endpoint}"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def call(self, method: str, path: str, fields: dict[str, Any] | None = None) -> Any:
        """Returns what the broker answers.

        Raises:
            ClickException: it refuses, or there is none.
        """
        body = None if fields is None else json.dumps(fields).encode()
        request = Request(self._address + PREFIX + path, body, self._headers, method=method)
        try:
            # A broker is near, never behind a proxy.
            with build_opener(ProxyHandler({})).open(request, timeout=_TIMEOUT) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                raise click.ClickException(_refusal(error.code, error.read())) from error
        except HTTPException as error:
            raise click.ClickException(
                f"{self._address} does not answer in HTTP. A broker does when pullstream[http] is "
                "installed where it runs"
            ) from error
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise click.ClickException(f"{self._address} does not answer: {reason}") from error


def _refusal(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"the broker refuses with HTTP status {status}"


def _default_endpoint() -> str:
    # Before the command it is an option of the whole program, which keeps it here.
    given = getattr(click.get_current_context().find_root().obj, "endpoint", None)
    return given or os.environ.get("PUBSUB_EMULATOR_HOST") or "localhost:8085"


def _of_a_broker(command: Command) -> Command:
    """Options that say which broker is meant; the command gets a `client`."""

    def with_client(*args: Any, endpoint: str, auth_token: str | None, **options: Any) -> Any:
        return command(*args, client=_Client(endpoint, auth_token), **options)

    with_client.__doc__ = command.__doc__
    endpoint_option = click.option(
        "--endpoint",
        default=_default_endpoint,
        help="HOST:PORT of the broker; by default PUBSUB_EMULATOR_HOST, or localhost:8085.",
    )
    token_option = click.option(
        "--auth-token",
        envvar="PULLSTREAM_AUTH_TOKEN",
        help="What a broker that was started with --auth-token wants to see.",
    )
    return endpoint_option(token_option(with_client))


# ---- faults --------------------------------------------------------------------------------------


@click.group()
def faults() -> None:
    """Let a running broker misbehave, and end it."""


@faults.command("add")
@click.argument("fault")
@_of_a_broker
def add(client: _Client, fault: str) -> None:
    """Set a fault, such as error:Publish:UNAVAILABLE:times=5; prints its id."""
    try:
        FaultRequest.from_text(fault)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="FAULT") from error
    click.echo(client.call("POST", "/faults", {"fault": fault})["id"])


@faults.command("list")
@_of_a_broker
def list_(client: _Client) -> None:
    """Show the faults in force, one as JSON on each line."""
    for fault in client.call("GET", "/faults")["faults"]:
        click.echo(json.dumps(fault))


@faults.command("clear")
@click.argument("fault_ids", metavar="[ID]...", type=int, nargs=-1)
@_of_a_broker
def clear(client: _Client, fault_ids: tuple[int, ...]) -> None:
    """Lift some faults, or all of them."""
    for path in [f"/faults/{fault_id}" for fault_id in fault_ids] or ["/faults"]:
        client.call("DELETE", path)


# ---- clock ---------------------------------------------------------------------------------------


@click.group()
def clock() -> None:
    """Read and move the clock of a running broker."""


@clock.command("show")
@_of_a_broker
def show(client: _Client) -> None:
    """Print the broker's time."""
    click.echo(client.call("GET", "/clock")["now"])


@clock.command("advance")
@click.argument("seconds", type=click.FloatRange(0))
@_of_a_broker
def advance(client: _Client, seconds: float) -> None:
    """Move the clock forward and let happen what is due by then; prints the new time."""
    click.echo(client.call("POST", "/clock:advance", {"seconds": seconds})["now"])
