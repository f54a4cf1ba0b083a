"""The program of one receiver of a Spark job: `python -m ...receiver_processes.program`.

The first line of its input is a JSON object with the settings. The end of the input ends the
receiver. So it ends whenever the process that started it ends, however that happens, and it still
has the time to return its messages. The driver ends it by the line of `stop_line`. Its output is
then STOPPED.
"""

from __future__ import annotations

import json
import signal
import sys
import threading

from pullstream.runtime.process import Latch
from pullstream.runtime.stop_signals import handled_by

from .loop import ReceiverLoop
from .options import settings_of
from .running import NotEnded, end_at_once, run_until
from .stop_line import STOPPED, wait_for_stop


def main() -> int:
    """Run the receiver; return 0, or 1 after an error, which is the output."""
    given = json.loads(sys.stdin.buffer.readline())
    stop = Latch()

    def watch_input() -> None:
        while sys.stdin.buffer.read(1):
            pass
        stop.set()

    def watch_driver() -> None:
        host, port = given["line"]
        wait_for_stop(host, port, stopped)

    def stopped() -> None:
        print(STOPPED)
        stop.set()

    # Not the signals of the executor's process group; the input says when to end.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=watch_input, name="pullstream-input", daemon=True).start()
    if given["line"] is not None:
        threading.Thread(target=watch_driver, name="pullstream-line", daemon=True).start()
    with handled_by(lambda number, frame: stop.set()):
        try:
            settings = settings_of(
                given["options"], count=given["count"], available_now=given["availableNow"]
            )
            run_until(ReceiverLoop(settings), stop)
        except NotEnded as error:
            print(error)
            end_at_once(1)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
            return 1
    return 0


if __name__ == "__main__":
    end_at_once(main())
