"""Segments of received messages on disk, and recovery after a crash."""
