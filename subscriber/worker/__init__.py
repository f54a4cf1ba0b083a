"""Processes that handle the messages of one subscription: `pullstream worker`.

The parent (`supervisor.py`) starts children in fresh interpreters, as gRPC does not survive a fork,
and keeps them going by the rules of `supervision.py`. A child (`child.py`, started by
`python -m subscriber.worker`) has a client of its own and runs the user's callback.
"""
