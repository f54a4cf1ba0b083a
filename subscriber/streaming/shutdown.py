"""The end of a subscription: its parts are taken down in the order that a message passes them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from subscriber.scheduler import Scheduler

from .callbacks import CallbackRunner
from .consumer import Consumer
from .dispatcher import Dispatcher
from .heartbeater import Heartbeater
from .leaser import Leaser
from .messages_on_hold import MessagesOnHold
from .shutdown_terms import ShutdownTerms

_log = logging.getLogger("pullstream.subscriber")

# How long the last acknowledgements may take when there is no other limit, in seconds.
FLUSH_TIMEOUT = 10.0

# A thread that nothing holds up has ended after so many seconds.
_END_WAIT = 0.2


class Shutdown:
    """What is done to the parts, once, on a thread that none of them waits for.

    What has not begun is given back; nothing new comes in; what runs may finish (or not, as the
    terms say); then the server is told of everything. A step that fails does not keep the others
    from being taken.

    Args:
        hang_up: end the connection of the stream; the last step.
    """

    def __init__(
        self,
        terms: ShutdownTerms,
        *,
        consumer: Consumer,
        heartbeater: Heartbeater,
        hold: MessagesOnHold,
        callbacks: CallbackRunner,
        scheduler: Scheduler,
        leaser: Leaser,
        dispatcher: Dispatcher,
        hang_up: Callable[[], None],
    ) -> None:
        self._terms = terms
        self._consumer = consumer
        self._heartbeater = heartbeater
        self._hold = hold
        self._callbacks = callbacks
        self._scheduler = scheduler
        self._leaser = leaser
        self._dispatcher = dispatcher
        self._hang_up = hang_up
        # Callbacks were waited for, and have not ended in time.
        self._is_cut_short = False

    def run(self) -> None:
        """Take everything down. Returns when all is done, or the time for it is up."""
        steps: tuple[Callable[[], None], ...] = (
            self._give_back_unbegun,
            lambda: self._consumer.stop(self._terms.left(FLUSH_TIMEOUT)),
            lambda: self._heartbeater.stop(self._end_wait()),
            self._wait_for_callbacks,
            self._give_back_unsettled,
            lambda: self._leaser.stop(self._end_wait()),
            lambda: self._dispatcher.stop(self._terms.left(FLUSH_TIMEOUT)),
            self._hang_up,
        )
        for step in steps:
            try:
                step()
            except Exception:
                # A scheduler of the user's may fail; the steps after it are needed all the more.
                _log.exception("a step of the shutdown failed")

    def _end_wait(self) -> float:
        """Seconds for a thread to end, which a hook of the user's may hold up."""
        return max(self._terms.left(FLUSH_TIMEOUT), _END_WAIT)

    def _give_back_unbegun(self) -> None:
        # First the held ones: the end of a running callback must not bring in another.
        self._dispatcher.nack(self._hold.give_up())
        self._dispatcher.nack(self._callbacks.close())
        # Then what waits for a worker, before the callbacks that run are waited for.
        self._dispatcher.nack(self._scheduler.shutdown() or [])

    def _wait_for_callbacks(self) -> None:
        if not self._terms.drains:
            return

        def drain() -> None:
            try:
                self._dispatcher.nack(self._scheduler.shutdown(await_msg_callbacks=True) or [])
            except Exception:
                _log.exception("the scheduler failed to wait for its callbacks")
            drained.set()
            self._terms.look_again()

        # On a thread of its own, which may be left behind: the wait may be cut short.
        drained = threading.Event()
        threading.Thread(target=drain, name="pullstream-drain", daemon=True).start()
        self._terms.wait_while_draining(drained.is_set)
        self._is_cut_short = self._terms.drains and not drained.is_set()

    def _give_back_unsettled(self) -> None:
        unsettled = [m for m in self._leaser.messages() if m.settled is None]
        if unsettled and self._is_cut_short:
            # Their callbacks were to finish. What they decide from now on has no effect.
            _log.warning(
                "shut down before all callbacks had ended: %d messages are given back, and come "
                "again",
                len(unsettled),
            )
        self._dispatcher.nack(unsettled)
