"""Feeds as JSON over HTTP, watched over server-sent events: docs/feeds-http.md.

An adapter: every request becomes an RPC of pullstream.feeds.v1, which the same handlers serve as
for gRPC.
"""
