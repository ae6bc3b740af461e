"""What a run reports to OpenTelemetry's in-memory exporters: nested spans, metrics, and texts only on request."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

import agentcho
from agentcho import Agent, Game, RunConfig, Scenario
from agentcho.audit import audit_run
from agentcho.errors import ExtraMissing
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.integrations.opentelemetry import names
from agentcho.integrations.opentelemetry.spans import Telemetry
from agentcho.records.record import SavedRun

SECRET = "canary"


class Talk(Scenario):
    """Two agents speak at once; the second game fails with an error that contains a secret."""

    def score(self, outcome: Any) -> dict[str, float]:
        return {"points": 2}

    async def play(self, game: Game) -> Scenario.Outcome:
        ann = game.cast(Agent, "ann", system=f"Your {SECRET}.", audience="everyone")
        bob = game.cast(Agent, "bob", audience="everyone")
        await game.announce(f"A {SECRET} for all.")
        await game.together(ann.say(prompt=f"Say the {SECRET}.", max_tokens=3), bob.say(max_tokens=2))
        if game.index == 1:
            raise LookupError(SECRET)
        return self.Outcome()


@agentcho.tool(audience="nobody")
def look(where: Literal["here"]) -> str:
    """Looks."""
    return f"a {SECRET}"


class Leaky(Scenario):
    """Ann uses a tool and speaks; Bob reads her message over what only she may know."""

    async def play(self, game: Game) -> Scenario.Outcome:
        ann, bob = game.cast(Agent, "ann"), game.cast(Agent, "bob")
        await ann.say(to="everyone", tools=[look], tool_choice="required", max_calls=1)
        await bob.say(to="everyone")
        return self.Outcome()


class Told:
    """A run with its spans and metrics."""

    def __init__(
        self, out: Path | None = None, content: bool = False, games: int = 2, scenario: Scenario | None = None
    ) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers, meters = TracerProvider(), MeterProvider([self._reader])
        tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        config = RunConfig(model="fake", games=games, seed=2, leakage="audit")
        with Telemetry("talk", config, content, tracers, meters) as telemetry:
            self.played: RunResult = play(RunRequest(scenario or Talk(), config, sink=telemetry.heard(None), out=out))
            if self.played.record is not None:
                telemetry.audited(audit_run(SavedRun(self.played.record)))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, begin: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(begin)]

    @property
    def metrics(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        [scope] = data.resource_metrics[0].scope_metrics
        return {metric.name: metric.data for metric in scope.metrics}


def within(spans: list[ReadableSpan]) -> dict[str, str | None]:
    """The parent span's name of each span."""
    by_id = {span.context.span_id: span.name for span in spans if span.context is not None}
    return {span.name: None if span.parent is None else by_id[span.parent.span_id] for span in spans}


def test_a_run_has_games_which_have_turns() -> None:
    told = Told()
    assert within(told.spans) == {
        "invoke_workflow talk": None,
        "game 0": "invoke_workflow talk",
        "game 1": "invoke_workflow talk",
        "invoke_agent ann": "game 1",
        "invoke_agent bob": "game 1",
        "agentcho.step": "invoke_workflow talk",
    }
    assert Counter(span.name for span in told.named("invoke_agent")) == {"invoke_agent ann": 2, "invoke_agent bob": 2}
    assert len(told.named("agentcho.step")) == told.played.steps
    turn = next(span for span in told.named("invoke_agent ann"))
    assert turn.attributes is not None
    assert turn.attributes[names.OUTPUT_TOKENS] == 3
    assert turn.attributes[names.FINISH] == ("length",)
    assert [event.name for event in turn.events] == [names.FIRST_TOKEN]
    for span in told.spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


def test_steps_are_within_the_time_of_their_run() -> None:
    told = Told(games=1)
    [run] = told.named("invoke_workflow")
    slack = 50_000_000  # the clocks of spans and steps are read one after the other
    for step in told.named("agentcho.step"):
        assert (run.start_time or 0) - slack <= (step.start_time or 0) <= (step.end_time or 0)
        assert (step.end_time or 0) <= (run.end_time or 0) + slack


def test_no_word_is_told_unless_it_is_asked_for() -> None:
    assert SECRET not in "".join(span.to_json() for span in Told().spans)
    told = Told(content=True)
    words = [span.attributes[names.OUTPUT] for span in told.named("invoke_agent") if span.attributes is not None]
    assert len(words) == 4
    assert all(str(each).startswith('[{"role": "assistant"') for each in words)


def test_errors_are_told_by_their_class() -> None:
    told = Told()
    [good], [bad] = told.named("game 0"), told.named("game 1")
    assert good.status.status_code is trace.StatusCode.UNSET
    assert [event.attributes for event in good.events] == [{names.SCORE_NAME: "points", names.SCORE: 2.0}]
    assert bad.status.status_code is trace.StatusCode.ERROR
    assert bad.status.description is None
    assert bad.attributes is not None
    assert bad.attributes[names.ERROR] == "LookupError"


def test_metrics_count_tokens_and_reuse() -> None:
    told = Told()
    metrics = told.metrics
    tokens = {point.attributes[names.TOKEN_TYPE]: point.sum for point in metrics[names.TOKENS].data_points}
    turns = [span.attributes or {} for span in told.named("invoke_agent")]
    assert tokens["output"] == sum(int(str(turn[names.OUTPUT_TOKENS])) for turn in turns) == 10
    assert tokens["input"] == sum(int(str(turn[names.INPUT_TOKENS])) for turn in turns)
    assert sum(point.count for point in metrics[names.TIME_TO_FIRST_TOKEN].data_points) == 4
    assert all(0 <= point.max <= 1 for point in metrics[names.REUSE].data_points)
    assert all(0 <= point.value <= 1 for point in metrics[names.STORE].data_points)


def test_leaks_are_counted_by_the_rule_that_finds_them(tmp_path: Path) -> None:
    told = Told(tmp_path, games=1, scenario=Leaky())
    assert told.played.record is not None
    report = audit_run(SavedRun(told.played.record))
    found = {point.attributes[names.RULE]: point.value for point in told.metrics[names.LEAKS].data_points}
    assert found == Counter(finding.rule for finding in report.findings)
    assert found["AC002"] > 0
    [run] = told.named("invoke_workflow")
    assert run.attributes is not None
    assert run.attributes[names.CONCLUSION] == report.conclusion == "findings"


def test_a_call_of_a_tool_is_in_the_turn_that_says_it() -> None:
    told = Told(games=1, scenario=Leaky())
    [call] = told.named("execute_tool")
    assert call.parent is not None
    assert call.attributes is not None
    [turn] = [
        span for span in told.named("invoke_agent ann") if (span.attributes or {})[names.MESSAGE] == "ann.0.step0"
    ]
    assert turn.context is not None
    assert call.parent.span_id == turn.context.span_id
    assert (call.attributes[names.TOOL], call.attributes[names.TOOL_CALL]) == ("look", "ann.0.step0")
    assert call.attributes[names.ENDED] == "returned"
    assert (turn.end_time or 0) <= (call.start_time or 0) <= (call.end_time or 0)
    assert SECRET not in "".join(span.to_json() for span in told.spans)


def test_names_are_those_of_the_conventions() -> None:
    """For all names that begin with "gen_ai." or "error."."""
    modules = gen_ai_attributes, gen_ai_metrics, error_attributes
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    ours = {value for name, value in vars(names).items() if name.isupper()}
    asked = {value for value in ours if value.startswith(("gen_ai.", "error.")) and value != names.EVALUATION}
    assert len(asked) > 15
    assert asked <= known
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    assert {names.INVOKE_AGENT, names.INVOKE_WORKFLOW, names.EXECUTE_TOOL} <= operations


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcho import extras

    monkeypatch.setattr(extras, "_installed", lambda module: module != "opentelemetry")
    with pytest.raises(ExtraMissing, match=r"agentcho\[otel\]"):
        agentcho.run("debate", model="fake", display="none", telemetry="spans")
