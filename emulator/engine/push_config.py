"""What a push_config may be set to."""

from __future__ import annotations

from urllib.parse import urlsplit

from protocol.errors import InvalidArgument
from protocol.messages import pubsub_pb2 as pubsub

_HELP = "Refer to https://cloud.google.com/pubsub/subscriber#create for more information."
_VERSION_KEY = "x-goog-version"
_VERSIONS = frozenset({"v1", "v1beta1", "v1beta2"})


def check_push_config(config: pubsub.PushConfig) -> None:
    """Refuse what cannot be pushed to.

    The real service wants https; here http will do, for endpoints under test have no certificate.
    """
    endpoint = config.push_endpoint
    if endpoint and not _is_url(endpoint):
        raise InvalidArgument(f"Invalid push endpoint given (endpoint={endpoint}). {_HELP}")
    for key, value in config.attributes.items():
        if key == _VERSION_KEY and value not in _VERSIONS:
            raise InvalidArgument(
                f"Invalid push endpoint version given in push config (version={value})."
            )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        # Reading the port checks it.
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        return False
