"""The names of the official client's `pubsub_v1.subscriber.types`, as in `pubsub_v1.types`."""

from pullstream.types import *  # noqa: F403
