"""Observe a subscription with metrics for Prometheus and with its statistics.

    pip install 'pullstream[prometheus]'
    python samples/observe.py projects/PROJECT/subscriptions/NAME [PORT]

The metrics are at http://localhost:9464/metrics, or on the port given. Ends after five seconds.
"""

from __future__ import annotations

import sys
from concurrent.futures import TimeoutError

from prometheus_client import start_http_server

from pullstream import Message, SubscriberClient
from pullstream.telemetry.prometheus import PrometheusHooks


def handle(message: Message) -> None:
    """Ack the message, in place of real work."""
    # ... the work ...
    message.ack()


def main(subscription: str, port: int = 9464) -> None:
    """Serve metrics while messages come in for five seconds, and print the statistics."""
    server, _ = start_http_server(port, addr="localhost")
    print(f"metrics: http://localhost:{server.server_port}/metrics", flush=True)
    # One instance serves all subscriptions of a program.
    hooks = PrometheusHooks()
    with SubscriberClient() as client:
        future = client.subscribe(subscription, handle, hooks=hooks)
        try:
            future.result(timeout=5)
        except TimeoutError:
            future.cancel()
            future.result()
    # Statistics are available at any time, also after the end.
    statistics = future.statistics()
    print(f"{future.state.value}: received {statistics.received}, acked {statistics.acked}")
    print(f"99 of 100 messages were acked within {statistics.latency.p99:.3f} s")
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
