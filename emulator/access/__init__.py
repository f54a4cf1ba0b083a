"""Who may use the broker: TLS, bearer tokens, and the projects each principal has.

Without any of it everybody who reaches the port may do everything; docs/security.md.
"""

from .access import ALL_PROJECTS, Access, AccessError, Principal
from .tls import Tls

__all__ = ["ALL_PROJECTS", "Access", "AccessError", "Principal", "Tls"]
