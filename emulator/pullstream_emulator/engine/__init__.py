"""The broker's core: plain objects without threads, gRPC or sleeping.

One owner (the event loop of pullstream_emulator/server.py, or a test) calls the `Engine`. The owner
passes the time in as an argument, and sends the messages that the calls return.
"""

from .delivery.delivery_state import Consumer, Delivery
from .engine import Engine
from .record import Record

__all__ = ["Consumer", "Delivery", "Engine", "Record"]
