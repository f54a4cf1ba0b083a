"""The command line `pullstream`, which needs the extra `pullstream[cli]` (click and rich).

This module imports no optional package, so that `main` can report a missing one.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def main() -> int:
    """Run the command line with the process's arguments and return its exit code.

    0: success. 1: the operation failed, with one line on stderr. 2: wrong usage. 130: Ctrl-C.
    """
    missing = [module for module in ("click", "rich") if find_spec(module) is None]
    if missing:
        print(
            f"pullstream's command line needs {' and '.join(missing)}: "
            "pip install 'pullstream[cli]'",
            file=sys.stderr,
        )
        return 1
    # Otherwise gRPC's core writes remarks to stderr, for example when a server goes away.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

    from .program import run

    return run()
