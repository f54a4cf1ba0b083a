"""The table of a command: its place, its format and its catalog."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .parameters import key_value, with_option_names

if TYPE_CHECKING:
    from pullstream.spark.tables.maintenance import Maintained

_Function = TypeVar("_Function", bound=Callable[..., Any])

# The modules that a format needs, and the extra that installs them.
_EXTRAS = {"deltalake": "delta", "pyiceberg": "iceberg", "obstore": "objectstore"}


def table_options(function: _Function) -> _Function:
    """Add the argument and the options that say which table is meant."""
    for decorate in reversed(
        (
            click.argument("folder", metavar="TABLE"),
            click.option(
                "--format",
                type=click.Choice(["delta", "iceberg", "parquet", "json"]),
                help="Default: that of the files in a folder; required for a URL.",
            ),
            click.option("--table", help="The table in the Iceberg catalog."),
            click.option(
                "--catalog",
                type=key_value,
                multiple=True,
                metavar="NAME=VALUE",
                help="A property of the Iceberg catalog; may be repeated. "
                "Default: a file beside the folder.",
            ),
            click.option(
                "--storage",
                type=key_value,
                multiple=True,
                metavar="NAME=VALUE",
                help="A setting of the object store; may be repeated. Default: the environment.",
            ),
        )
    ):
        function = decorate(function)
    return function


@contextmanager
def opened(
    *,
    folder: str,
    format: str | None,
    table: str | None,
    catalog: tuple[tuple[str, str], ...],
    storage: tuple[tuple[str, str], ...],
) -> Iterator[Maintained]:
    """Provide the table during the block; what is wrong is an error of the command.

    Raises:
        click.ClickException: A package is missing.
        click.UsageError: An option is invalid.
        IngestError: The table cannot be used.
    """
    if sys.version_info < (3, 11):
        raise click.ClickException("tables need Python 3.11 or later, as PySpark does.")
    try:
        from pullstream.spark.tables.maintenance import TableLocation

        yield TableLocation(
            folder=folder,
            format=format,
            storage=dict(storage),
            catalog=dict(catalog) or None,
            table=table,
        ).opened()
    except ImportError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0], "spark")
        raise click.ClickException(
            f"this table needs {error.name}: pip install 'pullstream[cli,{extra}]'"
        ) from error
    except ValueError as error:
        text = with_option_names(str(error), click.get_current_context().command)
        raise click.UsageError(text) from error
    except Exception as error:
        from pullstream.spark.store_errors import is_of_store, store_cause

        if not is_of_store(error):
            raise
        raise click.ClickException(f"cannot use {folder}: {store_cause(error)}") from error
