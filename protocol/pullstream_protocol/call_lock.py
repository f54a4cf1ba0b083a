"""CallLock: a lock behind public methods, which a signal handler may call."""

from __future__ import annotations

import _thread
import itertools
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self


_TEXT = (
    "a signal handler called this client while the interrupted code was in another call of it, and "
    "the call would wait for itself. In the handler, only note the signal or raise an exception "
    "(such as SystemExit), and call the client afterwards; or start a thread that calls it"
)


class InterruptedCall(RuntimeError):
    """A signal handler called a client in the middle of another call of the same client.

    The call would have waited for the call that the signal interrupted, which goes on only when the
    handler returns.
    """

    def __init__(self, text: str = _TEXT) -> None:
        super().__init__(text)


_numbers = itertools.count()
# All locks that are held only during a few statements of the SDK.
_locks: weakref.WeakValueDictionary[int, CallLock] = weakref.WeakValueDictionary()


class CallLock(_thread.RLock):  # type: ignore[misc]  # Final only in typeshed.
    """A lock that knows whether a signal handler would wait for itself.

        with self._lock.once:
            ...

    A signal handler runs between two instructions of the main thread. It may interrupt a thread
    that holds the lock, and call a method that needs it. With a plain lock, the program hangs. With
    a reentrant one, the handler changes data that the interrupted code is changing. This lock is of
    the reentrant type only because that type knows its owner; entering it again is refused. `with`
    is a single C call, so that a Ctrl-C finds the lock held or free, and never lost.

    Args:
        runs_user_code: Whether the holder may call code of the user, such as hooks, which may wait.

    Attributes:
        is_owned: Returns whether the calling thread holds the lock.
    """

    # A C method, on which `threading.Condition` relies, too.
    is_owned: ClassVar[Any] = vars(_thread.RLock)["_is_owned"]

    def __init__(self, *, runs_user_code: bool = False) -> None:
        if not runs_user_code:
            _locks[next(_numbers)] = self

    def __new__(cls, **_: object) -> Self:
        """Create the lock. The base class takes no arguments."""
        lock: Self = super().__new__(cls)
        return lock

    @property
    def once(self) -> Self:
        """The lock, to enter it.

        Raises:
            InterruptedCall: The calling thread holds the lock, so this is a signal handler that has
                interrupted the holder.
        """
        if self.is_owned():
            raise InterruptedCall
        return self


def refuse_to_wait() -> None:
    """Check that the calling thread holds no CallLock, for which the awaited thread may wait.

    Raises:
        InterruptedCall: It holds one, so this is a signal handler that has interrupted the holder.
    """
    # A list at once, because other threads create locks meanwhile.
    for reference in _locks.valuerefs():
        lock = reference()
        if lock is not None and lock.is_owned():
            raise InterruptedCall
