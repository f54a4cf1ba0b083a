"""Adapters that carry what the hooks tell to metrics and traces, each with an extra of its own.

    subscriber.telemetry.prometheus      PrometheusHooks       pullstream[prometheus]
    subscriber.telemetry.opentelemetry   OpenTelemetryHooks    pullstream[opentelemetry]

Nothing is imported here, so that neither extra has to be installed for the other.
"""
