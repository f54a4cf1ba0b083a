"""Stores of files: a folder on this machine, or a folder in an object store.

This module is pickled by value, as `tables/data_files.py` is: an executor needs pyarrow, but not
pullstream. So no function here may refer to another module of pullstream.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")

# Requests to an object store at the same time.
_AT_ONCE = 32

# The end of the names of files that are being written.
TEMPORARY = ".tmp"


class StoredFile(NamedTuple):
    """A file of a store.

    Attributes:
        path: Path relative to the store's folder.
        size: Size in bytes.
        modified: When it was written, by the clock of the store, in seconds since 1970.
    """

    path: str
    size: int
    modified: float

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class LocalFolder:
    """A folder on this machine. Each change is durable when the method returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Folders whose entry in their parent is on the disk.
        self._durable: set[Path] = set()

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._folder

    def map_all(self, function: Callable[[T], R], values: Iterable[T]) -> Iterable[R]:
        """Call a function with each value, one after the other."""
        return map(function, values)

    def put(self, path: str, data: bytes) -> None:
        """Create a file. Readers never see part of it."""
        self._replace(path, io.BytesIO(data))

    def create(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists; return whether it was created. Either way it is durable.

        A file that exists may be from an earlier call that ended before its folder was synced.
        """
        target = self._folder / path
        # Two writers may create the file at the same time.
        temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}{TEMPORARY}")
        self._write(temporary, io.BytesIO(data))
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        else:
            return True
        finally:
            temporary.unlink(missing_ok=True)
            _sync(target.parent)

    def get(self, path: str) -> bytes | None:
        """Return a file's content, or None if it does not exist."""
        try:
            return (self._folder / path).read_bytes()
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None if it does not exist."""
        try:
            return (self._folder / path).stat().st_size
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pa.NativeFile:
        """Open a file to read parts of it."""
        return pa.OSFile(str(self._folder / path))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Return the paths of the files below a folder, without an order."""
        for folder, _, names in os.walk(self._folder / prefix):
            inside = os.path.relpath(folder, self._folder)
            for name in names:
                yield name if inside == "." else f"{inside}/{name}"

    def files(self, prefix: str = "") -> Iterator[StoredFile]:
        """Return the files below a folder, without an order."""
        for path in self.list(prefix):
            # A file may be deleted meanwhile.
            with suppress(FileNotFoundError):
                status = (self._folder / path).stat()
                yield StoredFile(path, status.st_size, status.st_mtime)

    def modified(self, path: str) -> float:
        """Return when a file was written, by the clock of the store."""
        return (self._folder / path).stat().st_mtime

    def upload(self, path: str, source: Path) -> None:
        """Create a file from a file on this machine, without reading all of it into memory."""
        with source.open("rb") as content:
            self._replace(path, content)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        (self._folder / path).unlink(missing_ok=True)

    def _replace(self, path: str, content: BinaryIO) -> None:
        target = self._folder / path
        temporary = target.with_name(f".{target.name}{TEMPORARY}")
        self._write(temporary, content)
        temporary.replace(target)
        _sync(target.parent)

    def remove_remains(self, before: float) -> None:
        """Delete temporary files of writers that have ended, and folders without files.

        Args:
            before: Files and folders that were changed later stay. In seconds since 1970.
        """
        for folder, _, names in os.walk(self._folder, topdown=False):
            remains = [Path(folder, name) for name in names if name.endswith(TEMPORARY)]
            # Another process may write or delete meanwhile. A folder with entries stays.
            with suppress(OSError):
                was_changed = Path(folder).stat().st_mtime
                for path in remains:
                    if path.stat().st_mtime < before:
                        path.unlink(missing_ok=True)
                if was_changed < before and Path(folder) != self._folder:
                    Path(folder).rmdir()
                    self._durable.discard(Path(folder))

    def _write(self, target: Path, content: BinaryIO) -> None:
        """Write a file, and its content to the disk."""
        try:
            file = self._create(target)
        except FileNotFoundError:
            # Another process has removed the folder, because it was empty.
            self._durable.clear()
            file = self._create(target)
        with file:
            shutil.copyfileobj(content, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())

    def _create(self, target: Path) -> BinaryIO:
        self._make(target.parent)
        return target.open("wb")

    def _make(self, folder: Path) -> None:
        """Create a folder and its parents, durably.

        A folder that exists may be from a process that ended before it was synced.
        """
        if folder in self._durable:
            return
        if not folder.exists() or self._folder in folder.parents:
            self._make(folder.parent)
            folder.mkdir(exist_ok=True)
            _sync(folder.parent)
        else:
            # The parent of the store's folder may be unreadable.
            with suppress(PermissionError):
                _sync(folder.parent)
        self._durable.add(folder)


class Bucket:
    """A folder in an object store, by obstore."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        from obstore.store import from_url

        self._pool: ThreadPoolExecutor | None = None
        config: Any = {name: text for name, text in options.items() if "allow_http" not in name}
        client: Any = {"allow_http": "true"} if len(config) < len(options) else None
        try:
            self._store = from_url(url, config=config or None, client_options=client)
        except BaseException as error:
            # obstore has these errors, of which the first is not an Exception, if it does not know
            # a name.
            if type(error).__name__ not in ("PanicException", "UnknownConfigurationKeyError"):
                raise
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"storage has {', '.join(sorted(options))}; one of these names is unknown to the "
                f"store of {url} ({reason})"
            ) from None

    def map_all(self, function: Callable[[T], R], values: Iterable[T]) -> Iterable[R]:
        """Call a function with each value at the same time, and return the results in order."""
        values = list(values)
        if len(values) < 2:
            return map(function, values)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, "pullstream-store")
        return self._pool.map(function, values)

    def put(self, path: str, data: bytes) -> None:
        """Create a file. Readers never see part of it."""
        self._store.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists; return whether it was created."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._store.put(path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def get(self, path: str) -> bytes | None:
        """Return a file's content, or None if it does not exist."""
        try:
            return bytes(self._store.get(path).bytes())
        except FileNotFoundError:
            return None

    def open(self, path: str) -> pa.NativeFile:
        """Fetch a file to read parts of it. Few requests are faster than few bytes."""
        return pa.BufferReader(pa.py_buffer(self._store.get(path).bytes()))

    def list(self, prefix: str = "") -> Iterator[str]:
        """Return the paths of the files below a folder, without an order."""
        for some in self._store.list(prefix or None):
            for one in some:
                yield one["path"]

    def files(self, prefix: str = "") -> Iterator[StoredFile]:
        """Return the files below a folder, without an order."""
        for some in self._store.list(prefix or None):
            for one in some:
                yield StoredFile(one["path"], one["size"], one["last_modified"].timestamp())

    def modified(self, path: str) -> float:
        """Return when a file was written, by the clock of the store."""
        return self._store.head(path)["last_modified"].timestamp()

    def upload(self, path: str, source: Path) -> None:
        """Create a file from a file on this machine, without reading all of it into memory."""
        self._store.put(path, source)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError):
            self._store.delete(path)


def store_of(folder: str, options: Mapping[str, str] | None = None) -> LocalFolder | Bucket:
    """Return the store of a folder, which is a path, a `file:` URL or a URL of an object store."""
    scheme = scheme_of(folder)
    if scheme is None:
        return LocalFolder(Path(folder))
    if scheme == "file":
        from urllib.parse import unquote, urlparse

        return LocalFolder(Path(unquote(urlparse(folder).path)))
    return Bucket(folder, options or {})


def scheme_of(folder: str) -> str | None:
    """Return the scheme of a URL; None for a path. A letter is a drive of Windows."""
    scheme, colon, _ = folder.partition("/")[0].partition(":")
    return scheme if colon and len(scheme) > 1 else None


def _sync(folder: Path) -> None:
    """Sync a folder: a new file name is durable only after its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
