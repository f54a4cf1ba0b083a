"""Metadata of Iceberg tables in object stores: pyiceberg's files, by obstore.

pyiceberg has two ways of its own to object stores, with other settings than the data files have
here. With this class, one set of settings and credentials serves both.
"""

from __future__ import annotations

import io
from functools import cached_property
from typing import Any, cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from pullstream.spark.stores import Bucket

# Properties with this prefix are settings of the object store.
STORAGE = "pullstream.storage."


class StoreFileIO(FileIO):
    """Reads and writes whole files of object stores. They are small: metadata and manifests."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._buckets: dict[str, Bucket] = {}

    def new_input(self, location: str) -> StoreInputFile:
        """Return the file at a URL, to read it."""
        return StoreInputFile(location, *self._place(location))

    def new_output(self, location: str) -> StoreOutputFile:
        """Return the file at a URL, to write it."""
        return StoreOutputFile(location, *self._place(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file at a URL."""
        url = location if isinstance(location, str) else location.location
        bucket, path = self._place(url)
        bucket.delete(path)

    def _place(self, location: str) -> tuple[Bucket, str]:
        scheme, _, rest = location.partition("://")
        name, _, path = rest.partition("/")
        url = f"{scheme}://{name}"
        if url not in self._buckets:
            options = {
                name.removeprefix(STORAGE): str(text)
                for name, text in self.properties.items()
                if name.startswith(STORAGE)
            }
            self._buckets[url] = Bucket(url, options)
        return self._buckets[url], path


class StoreInputFile(InputFile):
    """A file that is read as a whole."""

    def __init__(self, location: str, bucket: Bucket, path: str) -> None:
        super().__init__(location)
        self._bucket = bucket
        self._path = path

    @cached_property
    def _content(self) -> bytes | None:
        return self._bucket.get(self._path)

    def __len__(self) -> int:
        return len(self._read())

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self._content is not None

    def open(self, seekable: bool = True) -> InputStream:
        """Return the content as a stream."""
        return cast(InputStream, io.BytesIO(self._read()))

    def _read(self) -> bytes:
        if self._content is None:
            raise FileNotFoundError(f"{self.location} does not exist")
        return self._content


class StoreOutputFile(OutputFile):
    """A file that is written as a whole, when its stream is closed."""

    def __init__(self, location: str, bucket: Bucket, path: str) -> None:
        super().__init__(location)
        self._bucket = bucket
        self._path = path

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self.to_input_file().exists()

    def to_input_file(self) -> StoreInputFile:
        """Return the file, to read it."""
        return StoreInputFile(self.location, self._bucket, self._path)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return the stream to which the content is written.

        Raises:
            FileExistsError: When the stream is closed, without `overwrite`: the file exists.
        """
        return cast(OutputStream, _Upload(self._bucket, self._path, self.location, overwrite))


class _Upload(io.BytesIO):
    def __init__(self, bucket: Bucket, path: str, location: str, overwrite: bool) -> None:
        super().__init__()
        self._bucket = bucket
        self._path = path
        self._location = location
        self._overwrite = overwrite

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            # The content is not complete.
            super().close()
        super().__exit__(kind, error, trace)

    def close(self) -> None:
        if self.closed:
            return
        content = self.getvalue()
        super().close()
        if self._overwrite:
            self._bucket.put(self._path, content)
        elif not self._bucket.create(self._path, content):
            raise FileExistsError(f"{self._location} exists")
