"""Catalogs of Iceberg tables: where a table is found, and how it is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
)

from pullstream.spark.errors import IngestError
from pullstream.spark.store_errors import store_cause

from .data_files import PartitionField

_PROPERTIES = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

# The name of a catalog whose properties have none. An SQL catalog finds its tables by it.
_NAME = "pullstream"


class CatalogEntry:
    """The place of a table in a catalog; see IcebergTable."""

    def __init__(
        self,
        folder: str,
        options: Mapping[str, str] | None,
        catalog: Mapping[str, str] | None,
        name: str | None,
    ) -> None:
        self._folder = folder.rstrip("/")
        self._options = dict(options or {})
        self._properties = catalog
        namespace, _, own = (name or self._folder.rpartition("/")[2]).rpartition(".")
        self._namespace, self._name = namespace or "default", own

    @property
    def place(self) -> str:
        """The name of the table in its catalog, and its path or URL."""
        return f"{self._namespace}.{self._name} in {self._folder}"

    def opened(self, schema: pa.Schema, partition_by: Sequence[PartitionField]) -> Table:
        """Return the table, and create it if it does not exist.

        Raises:
            IngestError: The catalog cannot be used.
        """
        try:
            catalog = self._load()
            try:
                return catalog.load_table((self._namespace, self._name))
            except NoSuchTableError:
                return self._create(catalog, schema, partition_by)
        except IngestError:
            raise
        except Exception as error:
            # Each catalog raises its own errors, such as errors of HTTP or of a database.
            raise IngestError(
                f"cannot open or create the Iceberg table {self.place}: {store_cause(error)}"
            ) from error

    def existing(self) -> Table:
        """Return the table as it is in its catalog.

        Raises:
            IngestError: There is no such table, or the catalog cannot be used.
        """
        folder = local_path(self._folder)
        if self._properties is None and not (folder and _default_catalog(folder).exists()):
            raise IngestError(
                f"there is no Iceberg catalog beside {self._folder}; name the table's catalog, "
                "such as type=rest and uri=https://..."
            )
        try:
            return self._load().load_table((self._namespace, self._name))
        except Exception as error:
            # Each catalog raises its own errors, such as errors of HTTP or of a database.
            raise IngestError(
                f"cannot open the Iceberg table {self.place}: {store_cause(error)}"
            ) from error

    def _load(self) -> Catalog:
        folder = local_path(self._folder)
        if folder is None:
            from .store_file_io import STORAGE, StoreFileIO

            storage = {f"{STORAGE}{name}": text for name, text in self._options.items()}
            file_io = f"{StoreFileIO.__module__}.{StoreFileIO.__name__}"
            given = self._properties or {}
            return load_catalog(**{"name": _NAME, "py-io-impl": file_io, **storage, **given})
        if self._properties is not None:
            return load_catalog(**{"name": _NAME, **self._properties})
        folder.parent.mkdir(parents=True, exist_ok=True)
        return load_catalog(
            "default",
            type="sql",
            uri=f"sqlite:///{_default_catalog(folder)}",
            warehouse=folder.parent.as_uri(),
        )

    def _create(
        self, catalog: Catalog, schema: pa.Schema, partition_by: Sequence[PartitionField]
    ) -> Table:
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace((self._namespace,))
        folder = local_path(self._folder)
        # Another job may create the table meanwhile.
        with (
            suppress(TableAlreadyExistsError, CommitFailedException),
            catalog.create_table_transaction(
                (self._namespace, self._name),
                schema,
                location=self._folder if folder is None else folder.as_uri(),
                properties=_PROPERTIES,
            ) as created,
        ):
            if partition_by:
                with created.update_spec() as spec:
                    for field in partition_by:
                        spec.add_field(field.column, transform_of(field), field.name)
        return catalog.load_table((self._namespace, self._name))


def _default_catalog(folder: Path) -> Path:
    return folder.parent / "catalog.db"


def transform_of(field: PartitionField) -> Transform[Any, Any]:
    """Return the transform of a partition value."""
    match field.transform:
        case "day":
            return DayTransform()
        case "hour":
            return HourTransform()
        case "bucket":
            return BucketTransform(field.buckets)
        case _:
            return IdentityTransform()


def local_path(folder: str) -> Path | None:
    """Return a folder as an absolute path, or None if it is a URL of an object store."""
    if folder.startswith("file:"):
        return Path(unquote(urlparse(folder).path))
    return None if ":" in folder.partition("/")[0] else Path(folder).absolute()
