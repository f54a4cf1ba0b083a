"""Channels that gRPC cannot close because the system refused it a thread.

The system refuses threads to a process that has too many of them. Python 3.12 and later refuse
threads once the interpreter has begun to shut down.
"""

from __future__ import annotations

import ctypes

import grpc

from pullstream.runtime.thread_start import threads_are_refused

# Ids of the abandoned channels, which are never freed.
_abandoned: set[int] = set()


def abandon(channel: grpc.Channel) -> None:
    """Keep a channel without a thread alive until the process ends, unused.

    gRPC answers asynchronous calls on a thread of the channel, which it starts with the first such
    call. If it cannot start this thread, it does not record that: later asynchronous calls on the
    channel are not answered either, and closing or deallocating the channel waits for the first
    call without end. So the channel gets a reference that is never released, not even by an exiting
    interpreter that clears modules.
    """
    if id(channel) not in _abandoned:
        _abandoned.add(id(channel))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(channel))


def has_its_thread(channel: grpc.Channel) -> bool:
    """Return whether asynchronous calls on the channel are answered, so that it can be closed.

    If not, the end of the process closes the channel.
    """
    return id(channel) not in _abandoned and not threads_are_refused()
