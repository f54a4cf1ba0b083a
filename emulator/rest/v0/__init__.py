"""Feeds as JSON over HTTP, watched over server-sent events: docs/feeds-http.md.

An adapter: every request becomes one of the RPCs of pullstream.feeds.v1, and the very handlers that
answer gRPC calls answer it.
"""
