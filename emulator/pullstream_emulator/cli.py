"""Command line of the broker: `pullstream emulator`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from pullstream_protocol.sizes import parse_size
from pullstream_protocol.version import VERSION

from . import log_output
from .access import Access, AccessError, Tls
from .access.options import (
    TOKEN_VARIABLE,
    access_from,
    check_token_variable,
    exposure_warning,
    tls_from,
)
from .access.tls import ServedCertificate
from .broker import PROFILES, Broker
from .config import ConfigError, Seeds, load, seeds_from_environment
from .console import CONSOLE_MODES, ConsoleMode
from .engine.delivery.subscription import MAX_PER_RESPONSE
from .engine.settings.durability import Durability
from .faults import Faults
from .faults.request import FaultRequest
from .net.loading_server import LoadingServer
from .rest.foreign_pages import checked_host, checked_origin
from .rest.server import Rest, obstacle
from .server import DEFAULT_RECEIVE_TIMEOUT, MAX_PORT, Server
from .storage.errors import StorageError
from .storage.opening import open_storage

if sys.platform != "win32":
    import resource
else:
    resource = None

_log = logging.getLogger("pullstream.emulator")

# See `_spare_the_backlog`.
GC_THRESHOLDS = (50_000, 5, 200)

# Enough for 20,000 clients. The hard limit of a process may be a billion.
MAX_DESCRIPTORS = 65_536

# Enough for the last minutes of a developer's work.
DEFAULT_HISTORY = 10_000


def fault(text: str) -> FaultRequest:
    """Parse the value of `--fault`; click shows this function's name."""
    try:
        asked = FaultRequest.from_text(text)
        if asked.acts_once:
            raise ValueError(f"{asked.kind} acts on open streams, and at the start none is open")
        # Set it on faults without a broker, so that invalid values are reported as usage errors.
        asked.set(Faults())
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}.") from error
    return asked


def checked(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return the type of an option that `parse` reads; its ValueErrors become usage errors."""

    def read(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from error

    return read


def origin(text: str) -> str:
    """Return the text if it is an origin; see `checked_origin`."""
    checked_origin(text)
    return text


@dataclass(frozen=True)
class _Options:
    """The values of the command line's options; their help texts describe them."""

    host: str
    port: int
    rest: bool
    rest_port: int | None
    console: ConsoleMode
    no_console: bool
    receive_timeout: float
    allow_hosts: tuple[str, ...]
    allow_origins: tuple[str, ...]
    profile: str
    config: Path | None
    max_bytes: int | None
    return_leases_on_disconnect: bool
    max_pull_messages: int
    faults: tuple[FaultRequest, ...]
    fault_seed: int
    history: int
    data_dir: str | None
    durability: str | None
    max_loss: float | None
    recover: bool
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    auth_tokens: tuple[str, ...]
    auth_file: Path | None
    log_level: str
    log_format: log_output.LogFormat
    access_log: bool


# Commands for running brokers come from the SDK, whose connection options they need.
COMMANDS = "pullstream.emulator.commands"


class EmulatorGroup(click.Group):
    """`pullstream emulator`: runs a broker, or one of the commands for running brokers."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the installed commands."""
        return sorted(entry_points(group=COMMANDS).names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        for entry_point in entry_points(group=COMMANDS, name=cmd_name):
            command: click.Command = entry_point.load()
            return command
        return None


class _BadAccess(click.ClickException):
    """A token, file or certificate cannot be used; reported as a usage error."""

    exit_code = 2


@click.group("emulator", cls=EmulatorGroup, invoke_without_command=True)
@click.option("--host", default="localhost", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8085,
    show_default=True,
    type=click.IntRange(0, MAX_PORT),
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--rest/--no-rest",
    default=True,
    show_default=True,
    help="Serve HTTP/JSON in addition to gRPC, on the same port.",
)
@click.option(
    "--rest-port",
    type=click.IntRange(0, MAX_PORT),
    metavar="PORT",
    help="Serve HTTP/JSON on a separate port.",
)
@click.option(
    "--console",
    default=CONSOLE_MODES[0],
    show_default=True,
    type=click.Choice(CONSOLE_MODES),
    help="Mode of the web pages at /console/: with or without actions.",
)
@click.option("--no-console", is_flag=True, help="Serve no web pages.")
@click.option(
    "--receive-timeout",
    default=DEFAULT_RECEIVE_TIMEOUT,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Close a connection that takes longer to send HTTP/2's preface, a request's head or body.",
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    type=checked(checked_host),
    envvar="PULLSTREAM_ALLOW_HOST",
    metavar="NAME",
    help="Accept HTTP requests that use this name of the broker: broker.example.com or "
    "*.example.com. Other names may be forged by web pages. Repeatable; or PULLSTREAM_ALLOW_HOST.",
)
@click.option(
    "--allow-origin",
    "allow_origins",
    multiple=True,
    type=checked(origin),
    envvar="PULLSTREAM_ALLOW_ORIGIN",
    metavar="ORIGIN",
    help="Accept HTTP requests of this site's web pages: http://localhost:3000. Repeatable; or "
    "PULLSTREAM_ALLOW_ORIGIN.",
)
@click.option(
    "--profile",
    default=PROFILES[0],
    show_default=True,
    type=click.Choice(PROFILES),
    help="Limits as in production, or ack deadlines from 1 s for fast tests.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="YAML or JSON file with initial topics, subscriptions, schemas and messages.",
)
@click.option(
    "--max-bytes",
    type=checked(parse_size),
    envvar="TOPICS_MAX_TOTAL_BYTES",
    metavar="SIZE",
    help="Refuse to publish when the stored messages take more bytes, such as 64MB; 0: no limit. "
    "Or TOPICS_MAX_TOTAL_BYTES.",
)
@click.option(
    "--return-leases-on-disconnect",
    is_flag=True,
    help="Redeliver the messages of a stream that is cancelled or cut at once, and not after their "
    "ack deadline.",
)
@click.option(
    "--max-pull-messages",
    default=MAX_PER_RESPONSE,
    show_default=True,
    type=click.IntRange(1, MAX_PER_RESPONSE),
    metavar="N",
    help="Most messages in the answer to a Pull. Google's emulator has 100.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=fault,
    help="Set a fault: delay:Pull:0.5, error:Publish:UNAVAILABLE:probability=0.1. Repeatable.",
)
@click.option(
    "--fault-seed", default=0, show_default=True, help="Seed of the faults' random numbers."
)
@click.option(
    "--history",
    default=DEFAULT_HISTORY,
    show_default=True,
    type=click.IntRange(0),
    metavar="EVENTS",
    help="Number of events to keep for the console and GET /v0/events; 0 for none.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="Persist everything in this directory, and start with its content.",
)
@click.option(
    "--durability",
    type=click.Choice([each.value for each in Durability]),
    help="With --data-dir: class of topics without the label pullstream-durability.  "
    "[default: disk]",
)
@click.option(
    "--max-loss",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="With --data-dir: most seconds of changes that a crash may lose at class disk; publishers "
    "wait for a disk that is too slow for it.  [default: 0.5]",
)
@click.option(
    "--recover",
    is_flag=True,
    help="With --data-dir: if it is damaged, continue with the remaining data and list the losses.",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    help="Serve TLS with this certificate (PEM, including its chain).",
)
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its key (PEM, not encrypted).")
@click.option(
    "--tls-client-ca",
    type=click.Path(path_type=Path),
    help="Accept only clients with a certificate of this CA (PEM).",
)
@click.option(
    "--auth-token",
    "auth_tokens",
    multiple=True,
    envvar=TOKEN_VARIABLE,
    metavar="TOKEN",
    help="Accept only callers with this bearer token. Repeatable; or PULLSTREAM_AUTH_TOKEN.",
)
@click.option(
    "--auth-file",
    type=click.Path(path_type=Path),
    help="YAML or JSON file of principals, their tokens and the projects they may use.",
)
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(log_output.LEVELS),
    envvar="PULLSTREAM_LOG_LEVEL",
    help="Lowest level of the log on standard error. Or PULLSTREAM_LOG_LEVEL.",
)
@click.option(
    "--log-format",
    default="text",
    show_default=True,
    type=click.Choice(log_output.FORMATS),
    envvar="PULLSTREAM_LOG_FORMAT",
    help="Lines of text, or one JSON object for each line. Or PULLSTREAM_LOG_FORMAT.",
)
@click.option("--access-log", is_flag=True, help="Log each call with its caller and duration.")
def command(**options: Any) -> None:
    """Run a Pub/Sub broker. It keeps everything in memory, or in --data-dir.

    Clients find it by PUBSUB_EMULATOR_HOST=HOST:PORT. Ctrl-C or SIGTERM stops it. SIGHUP reads
    tokens and certificates again.

    PUBSUB_PROJECT1=PROJECT,TOPIC:SUBSCRIPTION:..., PUBSUB_PROJECT2 and so on create topics and
    subscriptions at the start. A SUBSCRIPTION is ID[~ACK_DEADLINE][/ordered][+PUSH_ENDPOINT].
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    values = _Options(**options)
    log_output.configure(values.log_level, values.log_format)
    try:
        asyncio.run(_serve(values))
    except (AccessError, OSError, ConfigError, StorageError) as error:
        failure = _BadAccess if isinstance(error, AccessError) else click.ClickException
        raise failure(str(error)) from error


async def _serve(options: _Options) -> None:
    _raise_descriptor_limit()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def shut_down(number: signal.Signals) -> None:
        _log.info("%s: shutting down", number.name)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, shut_down, number)
    check_token_variable(os.environ)
    access = access_from(options.auth_tokens, options.auth_file)
    tls = tls_from(options.tls_cert, options.tls_key, options.tls_client_ca)
    certificate = None if tls is None else ServedCertificate(tls)
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, _reload, options, access, certificate)
    if warning := exposure_warning(options.host, tls, access):
        _log.warning(warning)
    rest = _rest(options, stop.set, tls, certificate)
    seeds = _seeds(options)
    with _answers_while_loading(options, rest):
        broker = _broker(options)
    try:
        seeds.plant(broker.call)
        server = Server(
            broker,
            credentials=None if certificate is None else certificate.credentials(),
            faults=_faults(options, broker),
            access=access,
            rest=rest,
            receive_timeout=options.receive_timeout,
            access_log=options.access_log,
        )
        bound = await server.start(options.host, options.port)
        _spare_the_backlog()
        # Tools wait for this line, because Google's emulator prints it.
        click.echo(f"Server started, listening on {bound}")
        if options.rest_port is not None:
            click.echo(f"HTTP/JSON, listening on {server.http_port}")
        _log_start(options, broker, bound, server.http_port, access, tls)
        await stop.wait()
        await server.stop()
    finally:
        broker.close()
    _log.info("stopped")


def _log_start(
    options: _Options,
    broker: Broker,
    port: int,
    http_port: int | None,
    access: Access | None,
    tls: Tls | None,
) -> None:
    """Log the version, the addresses and the content of a broker that has started."""
    _log.info("pullstream %s, Python %s, pid %d", VERSION, platform.python_version(), os.getpid())
    needs = "needs no token" if access is None else "needs a token"
    secure = "" if tls is None else " with TLS"
    if http_port in (None, port):
        protocols = "gRPC" if http_port is None else "gRPC and HTTP"
        _log.info("%s%s on %s:%d, %s", protocols, secure, options.host, port, needs)
    else:
        _log.info("gRPC%s on %s:%d, %s", secure, options.host, port, needs)
        _log.info("HTTP%s on %s:%d, %s", secure, options.host, http_port, needs)
    if http_port is not None:
        if not options.no_console:
            scheme = "http" if tls is None else "https"
            _log.info("console at %s://%s:%d/console/", scheme, options.host, http_port)
        _log.info("probes /healthz and /readyz need no token; metrics are at /metrics")
    if broker.storage is None:
        _log.info("everything is kept in memory")
    registry = broker.engine.registry
    found = (
        f"{len(registry.topics)} topics, {len(registry.subscriptions)} subscriptions, "
        f"{sum(len(each.messages) for each in registry.subscriptions.values())} unacknowledged "
        "messages"
    )
    if broker.storage is not None:
        _log.info("data directory %s: %s", broker.storage.directory.resolve(), found)
    elif registry.topics:
        _log.info("created: %s", found)


def _reload(
    options: _Options, access: Access | None, certificate: ServedCertificate | None
) -> None:
    """Read tokens and certificates again. If any file is wrong, nothing changes."""
    try:
        newer = access_from(options.auth_tokens, options.auth_file)
        tls_from(options.tls_cert, options.tls_key, options.tls_client_ca)
        if certificate is not None:
            certificate.reload()
    except (AccessError, OSError) as error:
        _log.error("SIGHUP: tokens and certificates stay as they are: %s", error)
        return
    if access is not None and newer is not None:
        access.replace(newer)
    _log.info("SIGHUP: tokens and certificates were read again")


def _raise_descriptor_limit() -> None:
    """Raise the soft limit of open files. A client on the shared port uses three.

    The soft limit is often 1,024, because of programs that use select(). The broker does not.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        _log.warning("cannot raise the limit of open files above %d: %s", soft, error)


def _spare_the_backlog() -> None:
    """Let Python search for cyclic garbage less often.

    A backlog contains none, but each search takes as long as publishing the backlog. A program may
    change this setting for its process; a broker inside another program may not.

    A search of the second generation stops all other work. It has 250,000 objects, which takes 80
    ms. A million takes 300 ms.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _rest(
    options: _Options,
    shutdown: Callable[[], None],
    tls: Tls | None,
    certificate: ServedCertificate | None,
) -> Rest | None:
    if not options.rest:
        return None
    rest = Rest(
        options.rest_port,
        shutdown,
        None if certificate is None else certificate.context,
        options.allow_hosts,
        options.allow_origins,
        console=None if options.no_console else options.console,
    )
    if problem := obstacle(rest):
        if options.rest_port is not None:
            raise click.ClickException(problem)
        _log.warning("gRPC only: %s", problem)
        return None
    if tls is None:
        return rest
    return replace(rest, certificate_names=tls.names())


def _seeds(options: _Options) -> Seeds:
    """Return the initial content of the broker."""
    seeds = seeds_from_environment(os.environ)
    return seeds if options.config is None else seeds + load(options.config)


def _broker(options: _Options) -> Broker:
    return Broker(
        history=options.history or None,
        profile=options.profile,
        return_leases_on_disconnect=options.return_leases_on_disconnect,
        max_pull_messages=options.max_pull_messages,
        max_bytes=options.max_bytes or None,
        storage=open_storage(
            options.data_dir,
            options.durability,
            recover=options.recover,
            max_loss=options.max_loss,
        ),
    )


def _answers_while_loading(
    options: _Options, rest: Rest | None
) -> contextlib.AbstractContextManager[object]:
    """Return a context manager that answers probes, as loading may take a minute."""
    port = options.port if options.rest_port is None else options.rest_port
    # Nothing can ask for a port that is not chosen yet.
    if options.data_dir is None or rest is None or not port:
        return contextlib.nullcontext()
    context = rest.tls() if callable(rest.tls) else rest.tls
    return LoadingServer(options.host, port, context)


def _faults(options: _Options, broker: Broker) -> Faults:
    faults = Faults(broker.clock, seed=options.fault_seed, expire=broker.engine.expire)
    for asked in options.faults:
        asked.set(faults)
    return faults
