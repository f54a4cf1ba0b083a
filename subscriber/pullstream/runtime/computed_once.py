"""An attribute that is computed when it is first read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    computed_once = cached_property
else:

    class computed_once(cached_property):  # noqa: N801  # As cached_property.
        """`cached_property` of Python 3.12 and later.

        Earlier ones hold a lock, which all objects of a class share: with columns, a tenth of the
        work on a message. Two threads that read the attribute at the same time may both compute it.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """Compute the value, and let later reads find it without this method."""
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
