"""The names of /v0: ids. The project is given separately, or omitted.

Ids of google.pubsub.v1 allow fewer characters. Other characters are percent-encoded there:
`notifications:web` is the topic `projects/P/topics/notifications%3Aweb`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from pullstream_protocol import names

# The project of a request that does not name one.
DEFAULT_PROJECT = "default"

# Characters that ids of google.pubsub.v1 may have in addition to letters and digits.
_ALLOWED = "-_.~+%"


def topic_path(project: str, name: str) -> str:
    """Return the full name of a topic of /v0; the name is not checked."""
    return names.topic_path(project, _id(name))


def router_path(project: str, name: str) -> str:
    """Return the full name of a router of /v0; the name is not checked."""
    return f"{names.project_path(project)}/routers/{_id(name)}"


def short(path: str) -> str:
    """Return a resource's name in /v0."""
    resource_id = names.short_id(path)
    name = unquote(resource_id)
    # An id created by other clients may contain a percent sign that is not an escape.
    return name if _id(name) == resource_id else resource_id


def _id(name: str) -> str:
    return quote(name, safe=_ALLOWED)
