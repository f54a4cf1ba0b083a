"""The names of /v0: ids, with the project said once beside them or not at all.

An id of google.pubsub.v1 has fewer characters to choose from. One that it does not allow is
percent-encoded there: `notifications:web` is the topic `projects/P/topics/notifications%3Aweb`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from protocol import names

# The project of a request that names none.
DEFAULT_PROJECT = "default"

# What ids of google.pubsub.v1 may have besides letters and digits.
_ALLOWED = "-_.~+%"


def topic_path(project: str, name: str) -> str:
    return names.topic_path(project, _id(name))


def router_path(project: str, name: str) -> str:
    return f"{names.project_path(project)}/routers/{_id(name)}"


def short(path: str) -> str:
    """The name that /v0 has for a resource."""
    resource_id = names.short_id(path)
    name = unquote(resource_id)
    # A percent sign that somebody else has put there may stand for nothing.
    return name if _id(name) == resource_id else resource_id


def _id(name: str) -> str:
    return quote(name, safe=_ALLOWED)
