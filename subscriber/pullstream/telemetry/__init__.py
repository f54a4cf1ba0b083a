"""Adapters from the hooks to metrics and traces. Each needs a separate extra.

    pullstream.telemetry.prometheus      PrometheusHooks       pullstream[prometheus]
    pullstream.telemetry.opentelemetry   OpenTelemetryHooks    pullstream[opentelemetry]

Nothing is imported here, so that each adapter works without the other's extra.
"""
