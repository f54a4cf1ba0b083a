"""Functions that build, parse and validate resource names.

The forms and the rules for IDs are the same as in Cloud Pub/Sub
(https://cloud.google.com/pubsub/docs/admin#resource_names): an ID has 3 to 255 characters, begins
with a letter, and does not begin with `goog`. A project may be any text without a slash: local
brokers are used with names such as `test`, which the real service would refuse.
"""

from __future__ import annotations

import re

from .errors import InvalidArgument

DELETED_TOPIC = "_deleted-topic_"
DELETED_SCHEMA = "_deleted-schema_"

_ID = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
# The rule for people.
ID_RULE = (
    "an id has 3 to 255 characters: letters, digits and -_.~+%; it begins with a letter, and not "
    "with goog"
)

_HELP = "Refer to https://cloud.google.com/pubsub/docs/admin#resource_names for more information."


def project_path(project: str) -> str:
    """Return `projects/PROJECT`."""
    return f"projects/{project}"


def topic_path(project: str, topic: str) -> str:
    """Return `projects/PROJECT/topics/TOPIC`."""
    return f"projects/{project}/topics/{topic}"


def subscription_path(project: str, subscription: str) -> str:
    """Return `projects/PROJECT/subscriptions/SUBSCRIPTION`."""
    return f"projects/{project}/subscriptions/{subscription}"


def snapshot_path(project: str, snapshot: str) -> str:
    """Return `projects/PROJECT/snapshots/SNAPSHOT`."""
    return f"projects/{project}/snapshots/{snapshot}"


def schema_path(project: str, schema: str) -> str:
    """Return `projects/PROJECT/schemas/SCHEMA`."""
    return f"projects/{project}/schemas/{schema}"


def router_path(project: str, router: str) -> str:
    """Return `projects/PROJECT/routers/ROUTER`."""
    return f"projects/{project}/routers/{router}"


def cursor_path(project: str, cursor: str) -> str:
    """Return `projects/PROJECT/cursors/CURSOR`."""
    return f"projects/{project}/cursors/{cursor}"


def parse(collection: str, path: str) -> dict[str, str]:
    """Split `projects/P/<collection>/ID` into its parts; `{}` if `path` has another form.

    The keys are `project` and the singular of the collection, as in the official client.
    """
    match = re.fullmatch(rf"projects/(.+?)/{collection}/(.+?)", path)
    if match is None:
        return {}
    return {"project": match[1], collection[:-1]: match[2]}


def short_id(path: str) -> str:
    """Return the last part of a resource name, as Pub/Sub's error texts quote it."""
    return path.rsplit("/", 1)[-1]


def project_of(path: str) -> str:
    """Return the project of a valid resource name."""
    return path.split("/", 2)[1]


def validate(collection: str, path: str) -> str:
    """Return `path` if it is a valid name in `collection` (`topics`, `subscriptions`, ...).

    Raises:
        InvalidArgument: The name is invalid. The text is the same as the real service's.
    """
    parts = path.split("/")
    valid = (
        len(parts) == 4
        and parts[0] == "projects"
        and parts[1] != ""
        and parts[2] == collection
        and _ID.fullmatch(parts[3]) is not None
    )
    if not valid:
        raise invalid_name(path)
    return path


def validate_project(path: str) -> str:
    """Return `path` if it has the form `projects/P`.

    Raises:
        InvalidArgument: `path` has another form.
    """
    parts = path.split("/")
    if len(parts) != 2 or parts[0] != "projects" or not parts[1]:
        raise invalid_name(path)
    return path


def invalid_name(path: str) -> InvalidArgument:
    """Return the error for an invalid resource name, with the real service's text."""
    return InvalidArgument(f"Invalid resource name given (name={path}). {_HELP}")
