"""Access control: TLS, bearer tokens, and the projects that each principal may use.

Without it, every client that reaches the port may do everything; see docs/security.md.
"""

from .access import ALL_PROJECTS, Access, AccessError, Principal
from .tls import Tls

__all__ = ["ALL_PROJECTS", "Access", "AccessError", "Principal", "Tls"]
