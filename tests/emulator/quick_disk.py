"""A fast directory for property tests, which flush their data thousands of times."""

from __future__ import annotations

import os

_IN_MEMORY = "/dev/shm"

# For `dir` of tempfile's functions. None, their default, if there is no file system in memory.
QUICK_DISK = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
