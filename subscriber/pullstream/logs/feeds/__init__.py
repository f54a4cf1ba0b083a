"""Clients for feeds: read, append to and watch topics that are kept as capped logs.

The public names are in `pullstream.feeds`.
"""
