"""Receiving of messages: from a subscription into segments of a spool."""
