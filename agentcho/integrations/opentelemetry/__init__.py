"""What a run does, as spans and metrics of OpenTelemetry."""
