"""The streaming pull: one module for each part, joined by the manager.

    consumer -> manager -> leaser, messages_on_hold, scheduler -> callback -> dispatcher -> server

docs/architecture.md tells the whole way of a message, thread by thread.
"""
