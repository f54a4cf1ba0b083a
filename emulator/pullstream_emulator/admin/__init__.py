"""Administration of a running broker over HTTP: its faults and its clock."""

from .admin import Admin

__all__ = ["Admin"]
