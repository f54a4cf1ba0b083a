"""Administration of a running broker over HTTP: its faults, its clock, its history."""

from .admin import Admin, Answer
from .controls import Controls

__all__ = ["Admin", "Answer", "Controls"]
