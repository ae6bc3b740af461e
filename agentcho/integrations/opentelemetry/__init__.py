"""Spans and metrics of OpenTelemetry for runs."""
