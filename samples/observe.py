"""Show a subscription at work: as metrics for Prometheus, and by its own statistics.

    pip install 'pullstream[prometheus]'
    python samples/observe.py projects/PROJECT/subscriptions/NAME [PORT]

The metrics are at http://localhost:9464/metrics, or on the port given. Ends after five seconds.
"""

from __future__ import annotations

import sys
from concurrent.futures import TimeoutError

from prometheus_client import start_http_server

from subscriber import Message, SubscriberClient
from subscriber.telemetry.prometheus import PrometheusHooks


def handle(message: Message) -> None:
    # ... the work ...
    message.ack()


def main(subscription: str, port: int = 9464) -> None:
    server, _ = start_http_server(port, addr="localhost")
    print(f"metrics: http://localhost:{server.server_port}/metrics", flush=True)
    # One instance for all the subscriptions of a program.
    hooks = PrometheusHooks()
    with SubscriberClient() as client:
        future = client.subscribe(subscription, handle, hooks=hooks)
        try:
            future.result(timeout=5)
        except TimeoutError:
            future.cancel()
            future.result()
    # They may be asked at any time, also now that it is over.
    statistics = future.statistics()
    print(f"{future.state.value}: received {statistics.received}, acked {statistics.acked}")
    print(f"99 of 100 messages were acked within {statistics.latency.p99:.3f} s")
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
