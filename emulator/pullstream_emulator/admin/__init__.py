"""Administration of a running broker over HTTP: its faults and its clock."""

from .admin import Admin
from .controls import Controls

__all__ = ["Admin", "Controls"]
