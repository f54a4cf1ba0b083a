"""The command line, `pullstream`. It needs the extra `pullstream[cli]`: click and rich.

Nothing is imported here that may be missing, so that `main` can say what to install.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec


def main() -> int:
    """Run the command line with the process's arguments and return its exit code.

    0: done. 1: the operation failed, one line on stderr says why. 2: wrong usage. 130: Ctrl-C.
    """
    missing = [module for module in ("click", "rich") if find_spec(module) is None]
    if missing:
        print(
            f"pullstream's command line needs {' and '.join(missing)}: "
            "pip install 'pullstream[cli]'",
            file=sys.stderr,
        )
        return 1
    # Else gRPC's core remarks on stderr that a server has gone away, and the like.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

    from .program import run

    return run()
