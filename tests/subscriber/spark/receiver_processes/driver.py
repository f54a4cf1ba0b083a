"""A driver with receivers, which a test kills. It prints a line when they run.

python driver.py ENDPOINT SPOOL SUBSCRIPTION
"""

from __future__ import annotations

import sys
import threading

from pullstream.spark import local_session
from pullstream.spark.receiver_processes.spark_job import receivers


def main(endpoint: str, spool: str, subscription: str) -> None:
    session = local_session(
        "local[3]", config={"spark.scheduler.mode": "FAIR", "spark.speculation": "true"}
    )
    options = {"endpoint": endpoint, "lingerMs": "100000"}
    with receivers(session, subscription, spool, count=2, options=options):
        print("started", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
