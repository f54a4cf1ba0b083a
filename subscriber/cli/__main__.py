"""`python -m subscriber.cli`: the command line from a source tree."""

import sys

from . import main

sys.exit(main())
