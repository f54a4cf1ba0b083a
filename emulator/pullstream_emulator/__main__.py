"""Runs `pullstream emulator` for `python -m pullstream_emulator`."""

from __future__ import annotations

import sys

try:
    from .cli import command
except ModuleNotFoundError as error:
    if error.name != "click":
        raise
    sys.exit("the command line needs its extra: pip install 'pullstream[cli]'")

command(prog_name="pullstream emulator")
