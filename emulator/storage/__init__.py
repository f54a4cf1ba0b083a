"""Durability: an engine's state in a SQLite database (docs/durability.md).

Nothing is imported here, so that a broker that keeps all in memory does without SQLite.
"""
