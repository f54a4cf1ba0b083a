"""`pullstream emulator`: the broker as a program of its own."""

from __future__ import annotations

import asyncio
import logging
import signal

import click

from .server import Server, new_engine


@click.command("emulator")
@click.option("--host", default="localhost", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8085,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free one.",
)
def command(host: str, port: int) -> None:
    """Run a Pub/Sub broker that keeps everything in memory.

    Clients find it by PUBSUB_EMULATOR_HOST=HOST:PORT. Ctrl-C or SIGTERM stops it.
    """
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        asyncio.run(_serve(host, port))
    except OSError as error:
        raise click.ClickException(str(error)) from error


async def _serve(host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = Server(new_engine())
    bound = await server.start(host, port)
    # The words that tools wait for since Google's emulator prints them.
    click.echo(f"Server started, listening on {bound}")
    await stop.wait()
    await server.stop()
