"""The store of a spool, from a path or a URL, and its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from .errors import SpoolError
from .store_errors import is_of_storage, store_cause
from .stores import Bucket, LocalFolder, scheme_of, store_of

# The schemes of object stores.
_BUCKETS = ("s3", "gs", "az")


def spool_store(
    folder: str, storage: Mapping[str, str], name: str = "spool"
) -> LocalFolder | Bucket:
    """Return the store of a spool.

    Args:
        folder: A path, or the URL of a folder in an object store.
        storage: Settings of the object store, by the names of obstore.
        name: Name of `folder` in errors.

    Raises:
        ValueError: The URL or a setting cannot be used.
    """
    scheme = scheme_of(folder)
    if scheme not in (None, "file", *_BUCKETS):
        raise ValueError(
            f"{name} is {folder!r}; it must be a folder, or a URL that begins with "
            f"{', '.join(f'{one}://' for one in _BUCKETS)}"
        )
    if scheme in _BUCKETS and find_spec("obstore") is None:
        raise ValueError(
            f"{name} is {folder!r}; a folder in an object store needs the extra objectstore: "
            "pip install 'pullstream[objectstore]'"
        )
    if storage and scheme not in _BUCKETS:
        raise ValueError(
            f"storage is given ({', '.join(sorted(storage))}), but {name} is {folder!r}; only an "
            "object store has settings"
        )
    try:
        return store_of(folder, storage)
    except ValueError:
        raise
    except Exception as error:
        # An error of obstore, such as a missing name of an account.
        raise ValueError(f"{name} is {folder!r}: {store_cause(error)}") from error


@contextmanager
def spool_errors(folder: str) -> Iterator[None]:
    """Report errors of the disk or the object store in the block as errors of the spool.

    Raises:
        SpoolError: The spool cannot be used.
    """
    try:
        yield
    except Exception as error:
        if not is_of_storage(error):
            raise
        raise SpoolError(
            f"cannot use {folder} as a spool: {store_cause(error)}. Nothing is lost: messages that "
            "are not committed are not acknowledged"
        ) from error
