"""The names of the official client's `pubsub_v1.subscriber.scheduler`."""

from pullstream.scheduling.scheduler import Scheduler, ThreadScheduler

__all__ = ["Scheduler", "ThreadScheduler"]
