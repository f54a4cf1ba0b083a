"""Version of the distribution `pullstream`, which all its packages share."""

VERSION = "0.1.0"
