"""Loads the user's callback by name."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any


class UnusableCallback(Exception):
    """The callback cannot be loaded; the text gives the reason and the remedy."""


def split_name(name: str) -> tuple[str, str]:
    """Return `module` and `attribute` of `module:attribute`, both of which may be dotted.

    Raises:
        ValueError: The name does not have that form.
    """
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(
            f"callback is {name!r}; it must be of the form module:function, for example app:handle"
        )
    return module, attribute


def load_callback(name: str) -> Callable[..., Any]:
    """Import the module of `module:attribute` and return the attribute.

    Raises:
        UnusableCallback: The module cannot be imported, or has no callable with that name.
    """
    try:
        module_name, attribute = split_name(name)
    except ValueError as error:
        raise UnusableCallback(str(error)) from None
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UnusableCallback(_import_failure(module_name, error)) from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise UnusableCallback(
                f"{_last_line(error)}. Check the name after the colon in {name!r}."
            ) from error
    if not callable(found):
        raise UnusableCallback(
            f"{name} is {found!r}, which cannot be called; name a function that takes a message."
        )
    checked: Callable[..., Any] = found
    return checked


def sources_of(name: str) -> list[str]:
    """Return the files or folders from which the package of a loaded callback was imported."""
    module: ModuleType | None = sys.modules.get(split_name(name)[0].partition(".")[0])
    folders = [str(folder) for folder in getattr(module, "__path__", ())]
    file = getattr(module, "__file__", None)
    return folders or ([file] if file else [])


def _import_failure(module: str, error: BaseException) -> str:
    text = _last_line(error)
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and (module == missing or module.startswith(f"{missing}.")):
        return (
            f"{text}. Start the worker in the folder that contains {missing}, "
            "or add that folder to PYTHONPATH."
        )
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text} ({where.filename}, line {where.lineno}). Importing {module} must not fail."


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()
