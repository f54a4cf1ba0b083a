"""Options of receivers, which are the options of the source with other defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pullstream.rpc.endpoint import CA_VARIABLE, EMULATOR_VARIABLE, TOKEN_VARIABLE, read_token
from pullstream.spark.datasource.options import StreamOptions
from pullstream.spark.protocol.receiver import check_order

from .settings import ReceiverSettings

# A segment of any size costs two puts, so receivers gather more messages than an embedded
# one, for which a batch need not wait for files.
_DEFAULTS = {"maxMessagesPerTrigger": "50000", "lingerMs": "1000"}

# Options that the environment of the driver may set. Executors may have another environment.
_ENVIRONMENT = {"endpoint": EMULATOR_VARIABLE, "token": TOKEN_VARIABLE, "ca": CA_VARIABLE}


def with_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """Return options with the defaults of receivers."""
    names = {name.lower() for name in given}
    missing = {name: text for name, text in _DEFAULTS.items() if name.lower() not in names}
    return {**missing, **given}


def for_other_machines(given: Mapping[str, str]) -> dict[str, str]:
    """Return options that need neither the environment of this process nor its token file.

    Raises:
        ValueError: The token file cannot be read.
    """
    found = {name: text for name, text in given.items() if name.lower() != "tokenfile"}
    file = next((text for name, text in given.items() if name.lower() == "tokenfile"), None)
    if file is not None:
        found["token"] = read_token(file)
    names = {name.lower() for name in found}
    for name, variable in _ENVIRONMENT.items():
        if name not in names and (text := os.environ.get(variable)):
            found[name] = text
    return found


def settings_of(
    given: Mapping[str, str],
    *,
    count: int = 1,
    available_now: bool = False,
) -> ReceiverSettings:
    """Return the settings of a receiver.

    Args:
        given: Options of the source, as text.
        count: Number of receivers.
        available_now: Whether receivers end when the subscription is empty.

    Raises:
        ValueError: An option is unknown or missing, or its value is invalid, or several receivers
            cannot keep the order of keys.
    """
    options = StreamOptions.parse(with_defaults(given), files_are_shared=True)
    check_order(count, by_key=options.layout.by_key)
    return ReceiverSettings(source=options.settings, count=count, available_now=available_now)
