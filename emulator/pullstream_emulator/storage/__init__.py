"""Durability: an engine's state in a SQLite database (docs/durability.md).

This package imports nothing here, so that a broker that keeps everything in memory does not load
SQLite.
"""
