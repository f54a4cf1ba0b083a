"""Operations on the storage of a spool, and how they are carried out.

The rules of the protocol are generators: they yield an operation and receive its result, or the
error of the storage. So they have no threads and no waits, and a test can stop them anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from pullstream.spark.errors import SpoolError
from pullstream.spark.stores import StoredFile

T = TypeVar("T")
R = TypeVar("R")


class Storage(Protocol):
    """A folder of files. Each change is durable and visible to all when the method returns.

    `LocalFolder` and `Bucket` are such folders. An error of `create` leaves open whether the file
    was created, and it may still be created later. Repeating the call is safe.
    """

    def create(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists; return whether it was created."""

    def put(self, path: str, data: bytes) -> None:
        """Create or replace a file. Only the probe replaces one."""

    def get(self, path: str) -> bytes | None:
        """Return a file's content, or None if it does not exist."""

    def open(self, path: str) -> pa.NativeFile:
        """Open a file to read parts of it."""

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Return the files below a folder, with the store's times, without an order."""

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""

    def map_all(self, function: Callable[[T], R], values: Iterable[T]) -> Iterable[R]:
        """Call a function with each value, at the same time if it helps; return the results."""


class Create(NamedTuple):
    """Create a file unless it exists. The result says whether it was created."""

    path: str
    data: bytes


class Get(NamedTuple):
    """Read files at the same time. The result has their contents; None if one does not exist."""

    paths: Sequence[str]


class List(NamedTuple):
    """List the files below a folder. The result is a list of StoredFiles."""

    folder: str


class Delete(NamedTuple):
    """Delete files at the same time, if they exist."""

    paths: Sequence[str]


class Open(NamedTuple):
    """Open a file to read parts of it."""

    path: str


Operation = Create | Get | List | Delete | Open
Steps = Generator[Operation, Any, T]


def run(steps: Steps[T], storage: Storage) -> T:
    """Carry out steps to their end, and return their result."""
    try:
        operation = next(steps)
        while True:
            try:
                result = carry_out(operation, storage)
            except Exception as error:
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as end:
        result_of_all: T = end.value
        return result_of_all


def carry_out(operation: Operation, storage: Storage) -> Any:
    """Carry out one operation, and return its result."""
    match operation:
        case Create(path, data):
            return storage.create(path, data)
        case Get(paths):
            return list(storage.map_all(storage.get, paths))
        case List(folder):
            return list(storage.files(folder))
        case Delete(paths):
            list(storage.map_all(storage.delete, paths))
            return None
        case Open(path):
            return storage.open(path)


def put(path: str, data: bytes) -> Steps[bytes | None]:
    """Create a file, and return the content that it has.

    That is `data` if this call has created it, or an earlier one whose answer was lost: each
    content has its writer's nonce. None: another writer's file was deleted meanwhile.
    """
    if (yield Create(path, data)):
        return data
    content: bytes | None = (yield Get([path]))[0]
    return content


def probe(storage: Storage, name: str) -> None:
    """Check that a storage keeps the promises that the protocol needs.

    Args:
        storage: The storage.
        name: A name for the files that no other call has.

    Raises:
        SpoolError: The storage ignores conditional puts, or lists late.
    """
    path = f"probe/{name}"

    def is_listed() -> bool:
        return path in (file.path for file in storage.files("probe"))

    found = [storage.create(path, b"1"), is_listed(), storage.create(path, b"2"), storage.get(path)]
    storage.delete(path)
    found.append(is_listed())
    if found != [True, True, False, b"1", False]:
        raise SpoolError(
            f"the storage cannot hold a spool: a put, a list, a conditional put of the same name, "
            f"a read, a deletion and a list gave {found}, and must give [True, True, False, b'1', "
            "False]. Use a store with conditional puts and consistent lists; mount NFS with noac"
        )
