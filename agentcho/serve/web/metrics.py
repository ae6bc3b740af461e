"""The server's metrics for Prometheus, in a registry of their own, and never labeled by tenant, society, agent or
words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agentcho.serve.request import TokenUsage

TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own = self._registry
        self._requests = Counter(
            "agentcho_requests", "Requests, by route and status.", ["route", "status"], registry=own
        )
        self._tokens = Counter(
            "agentcho_tokens",
            "Tokens: of prompts; of these reused exactly, and through encodings of messages; of answers.",
            ["kind"],
            registry=own,
        )
        self._missed = Counter(
            "agentcho_unmatched_tokens",
            "Tokens of messages in prompts of societies that were new there, by why.",
            ["reason"],
            registry=own,
        )
        self._ignored = Counter(
            "agentcho_ignored_parameters", "Parameters that were given and have no effect.", ["parameter"], registry=own
        )
        self._running = Gauge("agentcho_running_requests", "Requests that are under way.", registry=own)
        self._store = Gauge("agentcho_store_share", "Share of the store that is held.", ["model"], registry=own)
        self._rows = Gauge("agentcho_running_rows", "Answers that are being generated.", ["model"], registry=own)
        self._fed = Gauge("agentcho_fed_tokens", "Tokens that the model was fed so far.", ["model"], registry=own)
        self._first = Histogram(
            "agentcho_first_token_seconds", "From the request to its first text.", buckets=SECONDS, registry=own
        )
        self._whole = Histogram(
            "agentcho_request_seconds", "From a request to its end.", ["route"], buckets=SECONDS, registry=own
        )

    def ended(self, route: str, status: int, seconds: float) -> None:
        """A request has ended. `status` 499: its client had disconnected."""
        self._requests.labels(route, str(status)).inc()
        self._whole.labels(route).observe(seconds)

    def first(self, seconds: float) -> None:
        """The first text of an answer has come, this long after its request."""
        self._first.observe(seconds)

    def used(self, usage: TokenUsage) -> None:
        """Count the tokens of an answer."""
        for kind in ("prompt", "completion", "exact", "reused"):
            self._tokens.labels(kind).inc(getattr(usage, kind))
        for why, count in usage.missed:
            self._missed.labels(why).inc(count)

    def ignored(self, parameters: Iterable[str]) -> None:
        """Count parameters of a request that had no effect."""
        for parameter in parameters:
            self._ignored.labels(parameter).inc()

    def watch(self, running: Callable[[], int]) -> None:
        """Set the function that returns the number of running requests whenever the metrics are read."""
        self._running.set_function(running)

    def watch_model(self, model: str, rows: Callable[[], int], store: Callable[[], float]) -> None:
        """Set the functions that return the number of running answers of a model and the used share of its store."""
        self._rows.labels(model).set_function(rows)
        self._store.labels(model).set_function(store)

    def watch_fed(self, model: str, fed: Callable[[], int]) -> None:
        """Set the function that returns the number of tokens a model was fed. Compared with prompt and answer tokens,
        it shows what sharing saved."""
        self._fed.labels(model).set_function(fed)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format, of content type `TYPE`."""
        return generate_latest(self._registry)
