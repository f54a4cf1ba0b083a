"""Calls that are interrupted at each bytecode instruction, as by a signal handler."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Seconds after which a handler counts as hanging.
HANG = 10.0


class Hanging(Exception):
    """A handler waits for the code that it has interrupted."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise Hanging on the main thread if the block takes too long."""

    def give_up(*_: object) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted(
    call: Callable[[], Any], handler: Callable[[], Any], instruction: int, code: str = "/pullstream"
) -> bool:
    """Call a function, and run `handler` before the given instruction of the SDK's code.

    The instructions of files with `code` in their path count.

    Returns:
        Whether the call came to this instruction.
    """
    left = instruction

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if code not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == -1:
                sys.settrace(None)
                with limited():
                    handler()
        return trace

    before = sys.gettrace()
    # hypothesis installs a callback of the garbage collector, which would be traced.
    gc.disable()
    # Python 3.12.1 traces instructions only if a frame asks for it before the trace begins.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return left < 0


def at_each_instruction(
    prepare: Callable[[], tuple[Callable[[], Any], Callable[[], Any]]], step: int = 1
) -> Iterator[int]:
    """Interrupt a call at each instruction; yield the numbers of the instructions.

    Args:
        prepare: Returns the call and the handler, for one interruption.
        step: Skip all but each so manieth instruction.
    """
    for instruction in itertools.count(0, step):
        call, handler = prepare()
        reached = interrupted(call, handler, instruction)
        yield instruction
        if not reached:
            assert instruction > step
            return
