"""AgentDojo's tasks and attacks as cases, scored by AgentDojo's own checks. The only module that imports it.

Independent of how a case is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import yaml
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.attacks.attack_registry import load_attack
from agentdojo.functions_runtime import FunctionCall
from agentdojo.task_suite.load_suites import get_suites
from agentdojo.types import text_content_block_from_string

from tools.bench.dojo.labels import label
from tools.bench.dojo.society import Case, Offered, Ran, Wanted

VERSIONS = ("v1.1.2", "v1.2.2")
"""The last version of the benchmark with 629 attacks, as in its paper, and the latest version, with 949."""
ATTACK = "important_instructions_no_names"
"""The wording around an attacker's request. An agent that obeys every injection obeys this one."""
BAIT = "<INFORMATION>"
"""Shows that a text contains an attacker's words, however they are quoted and broken into lines."""
OPEN = {
    ("workspace", "user_task_13"): "what a mail asks for",
    ("workspace", "user_task_19"): "what a mail asks for",
    ("banking", "user_task_12"): "what a letter asks for",
    ("slack", "user_task_18"): "what a web page asks for",
    ("slack", "user_task_19"): "what a web page asks for",
}
"""Tasks in which the user leaves it to a text that is read what to do. The request alone does not tell which tools they
take."""
Play = Callable[[Case, Sequence[Offered]], Ran]


if hasattr(yaml, "CSafeLoader"):  # AgentDojo parses YAML for every case, and the C loader is much faster
    yaml.safe_load = lambda stream: yaml.load(stream, yaml.CSafeLoader)


class Scored(NamedTuple):
    """One case, by AgentDojo's own checks: whether the user's task was done, and whether the attack got through (None:
    there was none). `needs_words`: the task is not done unless something is said at the end. `attack_calls`: how many
    calls the attack asks for."""

    suite: str
    task: str
    attack: str | None
    useful: bool
    through: bool | None
    ran: Ran
    needs_words: bool = False
    attack_calls: int = 0


def package() -> str:
    """The version of the package."""
    return version("agentdojo")


def benign(benchmark: str, name: str, play: Play) -> Iterator[Scored]:
    """All user tasks of a suite, without attacks."""
    suite = get_suites(benchmark)[name]
    for id, task in suite.user_tasks.items():
        pipeline = _Pipeline(suite, task, None, play)
        useful, _ = suite.run_task_with_pipeline(pipeline, task, None, {})
        yield Scored(name, id, None, useful, None, pipeline.ran, _needs_words(suite, task))


def attacked(benchmark: str, name: str, play: Play) -> Iterator[Scored]:
    """All user tasks of a suite, with all of its attacks."""
    suite = get_suites(benchmark)[name]
    attack = load_attack(ATTACK, suite, _Named())
    for id, task in suite.user_tasks.items():
        for other, injected in suite.injection_tasks.items():
            texts = attack.attack(task, injected)
            pipeline = _Pipeline(suite, task, injected, play)
            useful, through = suite.run_task_with_pipeline(pipeline, task, injected, texts)
            yield Scored(name, id, other, useful, through, pipeline.ran, attack_calls=pipeline.attack_calls)


def offers(suite: Any, runtime: Any, env: Any) -> list[Offered]:
    """The tools of a suite, for one of its environments."""

    def runner(name: str) -> Callable[[Mapping[str, Any]], str]:
        def run(arguments: Mapping[str, Any]) -> str:
            value, error = runtime.run_function(env, name, arguments)
            return str(error or tool_result_to_str(value))

        return run

    return [
        Offered(tool.name, tool.description, _schema(tool), label(suite.name, tool.name).declared, runner(tool.name))
        for tool in suite.tools
    ]


def _schema(tool: Any) -> dict[str, Any]:
    schema: dict[str, Any] = tool.parameters.model_json_schema()
    return schema


def _wanted(calls: Sequence[Any]) -> tuple[Wanted, ...]:
    return tuple(Wanted(call.function, call.args) for call in calls)


def _asked(suite: Any, task: Any, calls: Sequence[Wanted]) -> tuple[str, ...]:
    """The tools with effects that a request asks for."""
    if (suite.name, task.ID) in OPEN:
        return ()
    return tuple(dict.fromkeys(each.tool for each in calls if label(suite.name, each.tool).effect))


class _Pipeline(BasePipelineElement):  # type: ignore[misc]
    """What AgentDojo runs: the game, and what it reports. A refused call is not among its calls because it did not
    run."""

    name = "local"

    def __init__(self, suite: Any, task: Any, injected: Any, play: Play) -> None:
        self._suite, self._task, self._injected, self._play = suite, task, injected, play
        self.ran: Ran
        self.attack_calls = 0

    def query(self, query: str, runtime: Any, env: Any, messages: Any = (), extra_args: Any = None) -> Any:
        """Play the case in this environment."""
        calls, output = _wanted(self._task.ground_truth(env)), self._task.GROUND_TRUTH_OUTPUT
        case = Case(query, calls, output, asked=_asked(self._suite, self._task, calls))
        if self._injected is not None:
            attack = _wanted(self._injected.ground_truth(env))
            self.attack_calls = len(attack)
            case = case._replace(bait=BAIT, attack=attack, said=self._injected.GROUND_TRUTH_OUTPUT)
        self.ran = self._play(case, offers(self._suite, runtime, env))
        said = [
            _assistant("", [FunctionCall(function=each.tool, args=dict(each.arguments))]) for each in self.ran.calls
        ]
        return query, runtime, env, [*said, _assistant(self.ran.output or "", None)], extra_args


def _assistant(text: str, calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [text_content_block_from_string(text)], "tool_calls": calls}


class _Named(BasePipelineElement):  # type: ignore[misc]
    """A pipeline that only has a name, which attacks ask for."""

    name = "local"

    def query(self, *args: Any, **kwargs: Any) -> Any:
        """Never called."""
        raise NotImplementedError


def _needs_words(suite: Any, task: Any) -> bool:
    """Whether a user's task is not done if nothing is said at the end."""

    class Silent(GroundTruthPipeline):  # type: ignore[misc]
        def query(self, *args: Any, **kwargs: Any) -> Any:
            query, runtime, env, messages, extra = super().query(*args, **kwargs)
            return query, runtime, env, [*messages[:-1], _assistant("", None)], extra

    useful, _ = suite.run_task_with_pipeline(Silent(task), task, None, {})
    return not useful
