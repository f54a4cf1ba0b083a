"""Processes that handle the messages of one subscription: `pullstream worker`.

The parent (`supervisor.py`) starts children in new interpreters, because gRPC does not survive a
fork, and restarts them by the rules of `supervisor_rules.py`. A child (`child.py`, started by
`python -m pullstream.worker`) has a separate client and runs the user's callback.
"""
