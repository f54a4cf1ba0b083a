"""Followers: read a topic's past records with reads, new records from a stream, without loss.

The public names are in `pullstream.follow`.
"""
