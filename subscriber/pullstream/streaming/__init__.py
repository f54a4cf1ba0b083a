"""Streaming pull: one module for each part, joined by the manager.

    consumer -> manager -> leaser, messages_on_hold, scheduler -> callback -> dispatcher -> server

docs/architecture.md describes the complete path of a message, thread by thread.
"""
