"""`pullstream emulator backup`: copy the data directory of a running broker."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import click

from .broker_admin import BrokerAdmin
from .context import CliContext, pass_session
from .groups import command


@command("backup", short_help="Copy a running broker's data directory.")
@click.argument("target", type=click.Path(path_type=Path))
@pass_session
def backup(session: CliContext, target: Path) -> None:
    """Copy the data directory of a running broker to the new folder TARGET.

    The copy has the state of one moment, and the broker serves meanwhile. It may run on another
    machine. To use the copy, start a broker with `--data-dir TARGET`.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise click.UsageError(f"{target} exists and is not an empty folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    # A copy that is cut off must not look like a complete one, so it is moved when it is complete.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        archive, unpacked = Path(folder) / "backup.tar", Path(folder) / "unpacked"
        BrokerAdmin(session).download("/v0/admin/backup", archive)
        unpacked.mkdir(mode=0o700)
        _unpack(archive, unpacked)
        if target.exists():
            target.rmdir()
        shutil.move(unpacked, target)
    size = sum(path.stat().st_size for path in target.iterdir())
    session.output.result({"backup": str(target), "bytes": size}, f"{target}: {size:,} bytes")


def _unpack(archive: Path, folder: Path) -> None:
    """Write the files of a backup. The server does not choose where, or with which rights."""
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is None or Path(member.name).name != member.name:
                raise click.ClickException(f"the backup contains {member.name!r}, which is no file")
            path = folder / member.name
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                shutil.copyfileobj(content, file)
