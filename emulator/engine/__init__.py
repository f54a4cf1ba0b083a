"""The broker without its wire: plain objects, no threads, no gRPC, no sleeping.

One owner (the event loop of emulator/server.py, or a test) calls the `Engine`; time comes in as an
argument, what there is to send is what the calls return.
"""

from .consumer import Consumer
from .engine import Engine
from .record import Delivery, Record

__all__ = ["Consumer", "Delivery", "Engine", "Record"]
