"""A debate reported to OpenTelemetry, whose SDK prints one line per span."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import agentcho


def line(span: ReadableSpan) -> str:
    tokens = (span.attributes or {}).get("gen_ai.usage.output_tokens", "")
    return f"{((span.end_time or 0) - (span.start_time or 0)) / 1e6:8.1f} ms  {span.name}  {tokens}\n"


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
trace.set_tracer_provider(provider)

agentcho.run("debate", model="fake", seed=1, display="none", telemetry="spans")
