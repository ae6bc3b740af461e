"""What the server counts, for Prometheus: in a registry of its own, and never by tenant, society, agent or words.

Does not know: who may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agentcho.serve.request import TokenUsage

TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """The counts of one server."""

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
        """A request is over. `status` 499: its client had gone."""
        self._requests.labels(route, str(status)).inc()
        self._whole.labels(route).observe(seconds)

    def first(self, seconds: float) -> None:
        """The first text of an answer is there, so long after its request."""
        self._first.observe(seconds)

    def used(self, usage: TokenUsage) -> None:
        """What an answer took."""
        for kind in ("prompt", "completion", "exact", "reused"):
            self._tokens.labels(kind).inc(getattr(usage, kind))
        for why, count in usage.missed:
            self._missed.labels(why).inc(count)

    def ignored(self, parameters: Iterable[str]) -> None:
        """Parameters that a request gave, and that nothing was done about."""
        for parameter in parameters:
            self._ignored.labels(parameter).inc()

    def watch(self, running: Callable[[], int]) -> None:
        """Ask this for the number of running requests, whenever somebody reads the metrics."""
        self._running.set_function(running)

    def watch_model(self, model: str, rows: Callable[[], int], store: Callable[[], float]) -> None:
        """Ask these for the running answers of a model, and for the held share of its store."""
        self._rows.labels(model).set_function(rows)
        self._store.labels(model).set_function(store)

    def watch_fed(self, model: str, fed: Callable[[], int]) -> None:
        """Ask this for the tokens that a model was fed: beside those of prompts and answers, what sharing spared."""
        self._fed.labels(model).set_function(fed)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it: `TYPE`."""
        return generate_latest(self._registry)
