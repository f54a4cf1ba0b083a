"""Backup of the data directory over HTTP, as a tar archive.

GET /v0/admin/backup   a consistent copy of the data directory of the running broker
"""

from __future__ import annotations

import asyncio
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from pullstream_emulator.storage.errors import StorageError
from pullstream_protocol.errors import FailedPrecondition, Unavailable

if TYPE_CHECKING:
    from pullstream_emulator.storage.storage import Storage

PATH = "/v0/admin/backup"

_PREFIX = ".backup-"
_CHUNK = 1 << 20


class Backup:
    """Answers requests for a copy of the data directory.

    The copy is made in a folder inside the data directory, and deleted when it is sent.

    Args:
        storage: The storage; None if the broker keeps everything in memory.
    """

    def __init__(self, storage: Storage | None) -> None:
        self._storage = storage
        # Each copy needs as much room on the disk as the data.
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send the archive.

        Raises:
            FailedPrecondition: The broker has no data directory.
            Unavailable: The copy cannot be made.
        """
        if self._storage is None:
            raise FailedPrecondition("This broker has no data directory: it was started without.")
        inside = self._storage.directory
        async with self._one_at_a_time:
            try:
                for left in inside.glob(f"{_PREFIX}*"):
                    # A broker was killed while it made a copy.
                    _remove(left)
                with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=inside) as folder:
                    copy = Path(folder) / "copy"
                    await self._storage.copy_to(copy)
                    archive = Path(folder) / "backup.tar"
                    await asyncio.to_thread(_pack, copy, archive)
                    return await _send(request, archive)
            except (StorageError, OSError) as error:
                raise Unavailable(f"The data directory cannot be copied: {error}.") from error


def _remove(left: Path) -> None:
    """Remove a folder, or a file or a link that has its name."""
    if left.is_dir() and not left.is_symlink():
        shutil.rmtree(left)
    else:
        left.unlink()


def _pack(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
            # From now on the archive has it.
            path.unlink()


async def _send(request: web.Request, archive: Path) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
    response.content_length = archive.stat().st_size
    await response.prepare(request)
    with archive.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            await response.write(chunk)
    await response.write_eof()
    return response
