"""`pullstream emulator`: the broker as a program of its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from .access import AccessError, Tls, exposure
from .access.options import access_from, tls_from
from .broker import PROFILES, Broker
from .config import ConfigError, Seeds, load, seeds_from_environment
from .faults import Faults
from .faults.request import FaultRequest
from .rest.server import Rest, obstacle
from .server import MAX_PORT, Server
from .storage.durability import Durability
from .storage.opening import StorageError, open_storage

_log = logging.getLogger("pullstream.emulator")


def fault(text: str) -> FaultRequest:
    """Read what `--fault` takes; click shows this function's name."""
    try:
        asked = FaultRequest.from_text(text)
        if asked.acts_once:
            raise ValueError(f"{asked.kind} acts on what is open, and at the start nothing is")
        # On faults of no broker: so that what makes no sense is an error of usage.
        asked.set(Faults())
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}.") from error
    return asked


@dataclass(frozen=True)
class _Options:
    """What the command line says; the options below tell what for."""

    host: str
    port: int
    rest: bool
    rest_port: int | None
    profile: str
    config: Path | None
    max_bytes: int | None
    faults: tuple[FaultRequest, ...]
    fault_seed: int
    history: int
    data_dir: Path | None
    durability: str | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    auth_tokens: tuple[str, ...]
    auth_file: Path | None


@click.command("emulator")
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
    help="Serve HTTP/JSON beside gRPC, on the same port.",
)
@click.option(
    "--rest-port",
    type=click.IntRange(0, MAX_PORT),
    metavar="PORT",
    help="Serve HTTP/JSON on a port of its own.",
)
@click.option(
    "--profile",
    default=PROFILES[0],
    show_default=True,
    type=click.Choice(PROFILES),
    help="Limits as in production, or with ack deadlines from 1 s for fast tests.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="YAML or JSON file of topics, subscriptions, schemas and messages to start with.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(0),
    envvar="TOPICS_MAX_TOTAL_BYTES",
    metavar="BYTES",
    help="Refuse to publish when the messages that are kept take more than this; 0 for no limit. "
    "Or TOPICS_MAX_TOTAL_BYTES.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=fault,
    help="Misbehave: delay:Pull:0.5, error:Publish:UNAVAILABLE:probability=0.1. May be repeated.",
)
@click.option(
    "--fault-seed", default=0, show_default=True, help="Of the dice that decide about faults."
)
@click.option(
    "--history",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    metavar="EVENTS",
    help="How many publishes, deliveries and outcomes to keep for GET /v0/admin/history.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep everything in this directory, and begin with what is there.",
)
@click.option(
    "--durability",
    type=click.Choice([each.value for each in Durability]),
    help="With --data-dir: how topics are kept that have no label pullstream-durability.  "
    "[default: disk]",
)
@click.option(
    "--tls-cert",
    type=click.Path(path_type=Path),
    help="Serve TLS with this certificate (PEM, with its chain).",
)
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its key (PEM, not encrypted).")
@click.option(
    "--tls-client-ca",
    type=click.Path(path_type=Path),
    help="Let in only clients with a certificate of this CA (PEM).",
)
@click.option(
    "--auth-token",
    "auth_tokens",
    multiple=True,
    envvar="PULLSTREAM_AUTH_TOKEN",
    metavar="TOKEN",
    help="Let in only callers with this bearer token. May be repeated; or PULLSTREAM_AUTH_TOKEN.",
)
@click.option(
    "--auth-file",
    type=click.Path(path_type=Path),
    help="YAML or JSON file of principals, their tokens and the projects they may use.",
)
def command(**options: Any) -> None:
    """Run a Pub/Sub broker. It keeps everything in memory, or in --data-dir.

    Clients find it by PUBSUB_EMULATOR_HOST=HOST:PORT. Ctrl-C or SIGTERM stops it.

    PUBSUB_PROJECT1=PROJECT,TOPIC:SUBSCRIPTION:..., PUBSUB_PROJECT2 and so on make topics and
    subscriptions at the start.
    """
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        asyncio.run(_serve(_Options(**options)))
    except (AccessError, OSError, ConfigError, StorageError) as error:
        raise click.ClickException(str(error)) from error


async def _serve(options: _Options) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    access = access_from(options.auth_tokens, options.auth_file)
    tls = tls_from(options.tls_cert, options.tls_key, options.tls_client_ca)
    if warning := exposure.warning(options.host, tls, access):
        _log.warning(warning)
    rest = _rest(options, stop.set, tls)
    seeds = _seeds(options)
    broker = _broker(options)
    try:
        seeds.plant(broker.call)
        server = Server(
            broker,
            credentials=None if tls is None else tls.credentials(),
            faults=_faults(options, broker),
            access=access,
            rest=rest,
        )
        bound = await server.start(options.host, options.port)
        _spare_the_backlog()
        # The words that tools wait for since Google's emulator prints them.
        click.echo(f"Server started, listening on {bound}")
        if options.rest_port is not None:
            click.echo(f"HTTP/JSON, listening on {server.http_port}")
        await stop.wait()
        await server.stop()
    finally:
        broker.close()


def _spare_the_backlog() -> None:
    """Let Python look for cyclic garbage less often.

    There is none in a backlog, but to find that out takes as long as to publish it. A program may
    decide so; a broker inside of another one may not.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _rest(options: _Options, shutdown: Callable[[], None], tls: Tls | None) -> Rest | None:
    if not options.rest:
        return None
    rest = Rest(options.rest_port, shutdown, None if tls is None else tls.context())
    if problem := obstacle(rest):
        if options.rest_port is not None:
            raise click.ClickException(problem)
        _log.warning("gRPC only: %s", problem)
        return None
    return rest


def _seeds(options: _Options) -> Seeds:
    """What the broker is to hold from the start."""
    seeds = seeds_from_environment(os.environ)
    return seeds if options.config is None else seeds + load(options.config)


def _broker(options: _Options) -> Broker:
    return Broker(
        history=options.history or None,
        profile=options.profile,
        max_bytes=options.max_bytes or None,
        storage=open_storage(options.data_dir, options.durability),
    )


def _faults(options: _Options, broker: Broker) -> Faults:
    faults = Faults(broker.clock, seed=options.fault_seed, expire=broker.engine.expire)
    for asked in options.faults:
        asked.set(faults)
    return faults
