"""Entry point of `python -m pullstream`, which is the command `pullstream`."""

import sys

from .cli import main

sys.exit(main())
