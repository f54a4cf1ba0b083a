"""Threads, timing and validation. Nothing in this package knows Pub/Sub."""
