"""The commands `gcloud beta emulators pubsub start` and `env-init`, for tools that expect gcloud.

`python -m pullstream_emulator.gcloud` takes these command lines. `start` runs the broker, and
`env-init` prints the environment for its clients. The container image has the program `gcloud`, so
Testcontainers' modules for Pub/Sub work with the image.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from pullstream_protocol.printable import printable

from .cli import command
from .server import MAX_PORT

DEFAULT_HOST_PORT = "localhost:8085"

# Words before the options. Google has the commands in three release tracks.
_GROUPS = (
    ("emulators", "pubsub"),
    ("beta", "emulators", "pubsub"),
    ("alpha", "emulators", "pubsub"),
)

_VARIABLE = "PUBSUB_EMULATOR_HOST"

# Around a text in YAML.
_QUOTES = "'\" "


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


def _environment_file(data_dir: str | None) -> Path:
    """Return the file with the address of the last start. Without a directory, it is gcloud's.

    Raises:
        OSError: The user has no home directory.
    """
    if data_dir:
        return Path(data_dir) / "env.yaml"
    try:
        settings = os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud"
    except RuntimeError as error:
        raise OSError(f"{error}: set CLOUDSDK_CONFIG") from error
    return Path(settings) / "emulators" / "pubsub" / "env.yaml"


def _save_address(data_dir: str | None, host: str, port: int) -> None:
    """Write the address for `env-init`. The broker also runs where the file cannot be written."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with suppress(OSError):
        file = _environment_file(data_dir)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Quotes, because YAML would read a bracket as the beginning of a list.
        file.write_text(f"{_VARIABLE}: '{address}'\n", encoding="utf-8")


def _print_environment(data_dir: str | None) -> None:
    """Print the commands for a shell, which runs `$(gcloud beta emulators pubsub env-init)`."""
    try:
        text = _environment_file(data_dir).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"no emulator has been started ({printable(str(error))}); start it first with `gcloud "
            "beta emulators pubsub start` and the same --data-dir"
        ) from error
    for line in text.splitlines():
        name, colon, value = line.partition(": ")
        if colon and name == _VARIABLE:
            # Without quotes, because the shell takes the result of a command as it is.
            click.echo(f"export {name}={value.strip(_QUOTES)}")


@click.command("gcloud")
@click.argument("words", nargs=-1, metavar="beta emulators pubsub start|env-init")
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
    """Run pullstream's broker where Google's emulator is expected.

    `env-init` prints the environment variable for the clients of the last start.
    """
    group, action = words[:-1], "".join(words[-1:])
    if group not in _GROUPS or action not in ("start", "env-init"):
        raise click.UsageError(
            "this gcloud knows only `gcloud beta emulators pubsub start` and `gcloud beta "
            f"emulators pubsub env-init`, not {' '.join(words)!r}"
        )
    if action == "env-init":
        _print_environment(data_dir)
        return
    host, port = host_and_port(host_port)
    if port:
        _save_address(data_dir, host, port)
    arguments = ["--host", host, "--port", str(port)]
    if data_dir:
        arguments += ["--data-dir", data_dir]
    if log_http:
        arguments.append("--access-log")
    command.main(arguments, prog_name="pullstream emulator")


if __name__ == "__main__":
    gcloud(prog_name="gcloud")
