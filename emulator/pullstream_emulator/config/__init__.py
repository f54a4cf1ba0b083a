"""Initial content of a broker, from a configuration file or from PUBSUB_PROJECT1 and so on."""

from .environment import seeds_from_environment
from .file import ConfigSource, load
from .seeds import ConfigError, Seeds

__all__ = ["ConfigError", "ConfigSource", "Seeds", "load", "seeds_from_environment"]
