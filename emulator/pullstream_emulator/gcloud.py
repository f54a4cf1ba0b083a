"""The command `gcloud beta emulators pubsub start`, for tools that start Google's emulator.

`python -m pullstream_emulator.gcloud` takes that command line and runs the broker. The container
image has it as the program `gcloud`, so Testcontainers' modules for Pub/Sub work with the image.
"""

from __future__ import annotations

import click

from .cli import command
from .server import MAX_PORT

DEFAULT_HOST_PORT = "localhost:8085"

# Words before the options. Google has the command in three release tracks.
_COMMANDS = (
    ("emulators", "pubsub", "start"),
    ("beta", "emulators", "pubsub", "start"),
    ("alpha", "emulators", "pubsub", "start"),
)


def host_and_port(text: str) -> tuple[str, int]:
    """Return the parts of `--host-port`: HOST:PORT, HOST, :PORT or PORT.

    Raises:
        click.UsageError: The port is not a number from 0 to 65535.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        # One part only: a port, or a host. An IPv6 address without a port ends with a bracket.
        host, port = ("", text) if text.isdecimal() else (text, "")
    default_host, _, default_port = DEFAULT_HOST_PORT.partition(":")
    port = port or default_port
    if not (port.isascii() and port.isdecimal()) or int(port) > MAX_PORT:
        raise click.UsageError(
            f"--host-port is {text!r}; it must be HOST:PORT with a port from 0 to {MAX_PORT}, such "
            f"as {DEFAULT_HOST_PORT}"
        )
    return host.strip("[]") or default_host, int(port)


@click.command(
    "gcloud",
)
@click.argument("words", nargs=-1, metavar="beta emulators pubsub start")
@click.option("--host-port", default=DEFAULT_HOST_PORT, show_default=True, help="HOST:PORT.")
@click.option("--data-dir", help="Persist everything in this directory.")
@click.option("--project", help="Accepted without effect: the broker serves every project.")
@click.option("--verbosity", help="Accepted without effect.")
@click.option("--log-http", is_flag=True, help="Log each call.")
@click.option("--quiet", "-q", is_flag=True, help="Accepted without effect.")
@click.option("--user-output-enabled/--no-user-output-enabled", default=True, hidden=True)
def gcloud(
    words: tuple[str, ...], host_port: str, data_dir: str | None, log_http: bool, **_: object
) -> None:
    """Run pullstream's broker where Google's emulator is expected."""
    if words not in _COMMANDS:
        raise click.UsageError(
            f"this gcloud knows only `gcloud beta emulators pubsub start`, not {' '.join(words)!r}"
        )
    host, port = host_and_port(host_port)
    arguments = ["--host", host, "--port", str(port)]
    if data_dir:
        arguments += ["--data-dir", data_dir]
    if log_http:
        arguments.append("--access-log")
    command.main(arguments, prog_name="pullstream emulator")


if __name__ == "__main__":
    gcloud(prog_name="gcloud")
