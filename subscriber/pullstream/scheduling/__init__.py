"""Threads and event loops that run callbacks."""
