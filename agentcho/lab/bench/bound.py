"""Bounds the possible gain in time to first token by the share of a workflow's prompts that no engine could have
encoded before.

Counts tokens, message by message: those that the baseline has to encode because no earlier prompt has the same prefix,
and of these the ones in messages that were never encoded at all, with the opening and the header of each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agentcho.games.runs.trace_framing import framed
from agentcho.lab.bench.arms import BASELINE
from agentcho.lab.bench.prompts import laid
from agentcho.lab.bench.result import Figures, Result
from agentcho.protocol.call import FramingPort
from agentcho.records.trace import Workflow


class New(NamedTuple):
    """Tokens of all prompts of a workflow: in total, new to the baseline, and new to every reading mode."""

    prompts: int
    baseline: int
    both: int


def new(workflow: Workflow, framing: FramingPort) -> New:
    """Count the calls in the order of the trace, without the BOS that begins every prompt."""
    frames, asked = {message.id: framed(message, framing) for message in workflow.messages}, laid(workflow, framing)
    numbers = dict[object, int]()  # of prompt prefixes that end with a message, and of messages with their parents

    def number(key: object) -> int:
        return numbers.setdefault(key, len(numbers))

    alike, begun, met = dict[str, int](), set[int](), set[int]()
    prompts = alone = both = 0
    for message in workflow.messages:
        over = tuple(alike[id] for id in message.parents)
        said = message.kind == "decode"
        alike[message.id] = number(message.id if said else (frames[message.id].tokens, over))
        if not said:
            continue
        path = -1
        pieces, opened, words = asked[message.id]
        for ids, messages in pieces:
            path, tokens = number((path, ids)), len(ids)
            known = all(alike[id] in met for id in messages)
            prompts += tokens
            alone += tokens * (path not in begun)
            apart = sum(len(frames[id].tokens) for id in messages)
            both += min(tokens, apart) * (path not in begun and not known)
            begun.add(path)
            met.update(alike[id] for id in messages)
        own = len(opened)
        prompts = prompts + own
        alone = alone + own
        both = both + own
        begun.add(number((path, (*opened, *words.content, *words.closing))))
        met.add(alike[message.id])
    return New(prompts, alone, both)


def with_new(workflow: Workflow, framing: FramingPort, figures: Iterable[Figures]) -> list[Figures]:
    """The figures of one workflow; the baseline's get "prompts", "alone" (new to it) and "new" (new to every mode)."""
    return [
        each.model_copy(update={"values": each.values | _values(new(workflow, framing))})
        if each.arm == BASELINE and each.values
        else each
        for each in figures
    ]


def _values(found: New) -> dict[str, tuple[float, ...]]:
    return {"prompts": (float(found.prompts),), "alone": (float(found.baseline),), "new": (float(found.both),)}


def bounded(result: Result) -> bool:
    """Whether a result has the tokens that are new to every mode."""
    return any(result.values(subject, BASELINE, "new") for subject in result.subjects)


def bound(result: Result, subjects: Sequence[str]) -> float:
    """The largest possible speedup of first tokens over the baseline, by the tokens that each has to encode, over these
    subjects together."""
    alone, both = (sum(result.values(each, BASELINE, what)[0] for each in subjects) for what in ("alone", "new"))
    return alone / both
