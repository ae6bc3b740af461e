"""Plays a workflow on llama.cpp's server, one slot per agent: each call starts as soon as all that it reads was said.

Prompts have the ids that our baseline feeds, except that decoded texts are the server's own, with the recorded number
of tokens. So a slot already holds what its agent said, and reuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count
from time import perf_counter
from typing import NamedTuple

from agentcho.engine.call_layout import FramedTokens
from agentcho.games.runs.replay import awaited
from agentcho.lab.bench.peers.llama import Said
from agentcho.lab.bench.played import CallTimes, WorkflowTimes
from agentcho.lab.bench.prompts import Piece, laid
from agentcho.protocol.call import FramingPort
from agentcho.records.trace import Workflow

Ids = tuple[int, ...]
ANY = -1
"""Lets the server choose the slot."""
Complete = Callable[[Sequence[int], int, int], Said]
"""`(prompt, number, slot)`: generates this number of tokens."""


class SlotCall(NamedTuple):
    """One decode: its slot, the decodes that it waits for, its prompt in parts (a decode's id stands for the text of
    that decode), and its number of tokens."""

    id: str
    slot: int
    after: frozenset[str]
    prompt: tuple[Ids | str, ...]
    length: int

    def ids(self, said: Mapping[str, Ids]) -> Ids:
        """The whole prompt."""
        return tuple(id for part in self.prompt for id in (said[part] if isinstance(part, str) else part))


def speakers(workflow: Workflow) -> list[str]:
    """The agents that say something, in the order in which they first do."""
    return list(dict.fromkeys(m.author or "" for m in workflow.messages if m.kind == "decode" and m.text))


def slot_calls(workflow: Workflow, framing: FramingPort, slots: int) -> list[SlotCall]:
    """All decodes that say something, parents first. Agents get slots in the order in which they first speak; if there
    are too few, the server chooses the slot that has the most of a prompt."""
    asked = laid(workflow, framing)
    spoken = {id: found.own for id, found in asked.items() if found.own.content}
    needs, agents = awaited(workflow), speakers(workflow)
    start: Ids = framing.begin
    found = []
    for message in (each for each in workflow.messages if each.id in spoken):
        parts: list[Ids | str] = [start]
        for piece in asked[message.id].pieces:
            parts += _around(piece, spoken)
        parts.append(asked[message.id].begun)
        slot = agents.index(message.author or "") if len(agents) <= slots else ANY
        after, length = needs[message.id] & spoken.keys(), len(spoken[message.id].content)
        found.append(SlotCall(id=message.id, slot=slot, after=after, prompt=tuple(parts), length=length))
    return found


def _around(piece: Piece, spoken: Mapping[str, FramedTokens]) -> list[Ids | str]:
    """Split a piece of a prompt: the recorded ids of decoded texts in it are replaced by the ids of these decodes."""
    parts, left = list[Ids | str](), piece.ids
    for id in piece.messages:
        said = spoken[id].content if id in spoken else ()
        places = range(len(left) - len(said) + 1) if said else ()
        start = next((place for place in places if left[place : place + len(said)] == said), None)
        if start is not None:
            parts += [left[:start], id]
            left = left[start + len(said) :]
    return [*parts, left]


class SlotsPlayed(NamedTuple):
    """One play: when each call was ready, had its first token and ended, and the server's response to it."""

    times: WorkflowTimes
    said: Mapping[str, Said]

    def figures(self) -> dict[str, float]:
        """A workflow's usual figures; generated tokens and their rate; tokens of prompts cached; drafted and accepted
        ones."""
        whole, said = self.times.figures(), sum(len(each.tokens) for each in self.said.values())
        counts = {what: float(sum(getattr(each, what) for each in self.said.values())) for what in COUNTS}
        return {**whole, **spoken(said, whole["seconds"]), **counts}


COUNTS = ("cached", "guessed", "right")


def spoken(said: int, seconds: float) -> dict[str, float]:
    """The number of generated tokens, and the rate per second."""
    return {"said": float(said), "rate": said / seconds}


def empty_slots(calls: Sequence[SlotCall], slots: int, complete: Complete) -> None:
    """Replace what each slot holds by a token that no prompt begins with, so that a play reuses nothing of an earlier
    play of the same words. `ArmUnavailable`."""
    begun = {call.ids({part: (ANY,) for part in call.prompt if isinstance(part, str)})[0] for call in calls}
    other = next(id for id in count() if id not in begun)
    for slot in range(slots):
        complete((other,), 1, slot)


def play_slots(calls: Sequence[SlotCall], complete: Complete) -> SlotsPlayed:
    """Play a workflow. `ArmUnavailable`: raised by the first call that fails."""
    said, times, began = dict[str, Said](), dict[str, CallTimes](), perf_counter()
    given, left = dict[Future[Said], SlotCall](), list(calls)

    def finish(call: SlotCall, one: Said) -> None:
        ended = perf_counter() - began
        ready = max((times[id].ended for id in call.after), default=0.0)
        said[call.id], times[call.id] = one, CallTimes(ready, ended - one.speaking, ended)

    with ThreadPoolExecutor(max(1, len(calls))) as threads:
        while left or given:
            words = {id: one.tokens for id, one in said.items()}
            for call in [call for call in left if call.after <= said.keys()]:
                given[threads.submit(complete, call.ids(words), call.length, call.slot)] = call
                left.remove(call)
            for done in wait(given, return_when=FIRST_COMPLETED).done:
                finish(given.pop(done), done.result())
    encoded = sum(one.prompt + len(one.tokens) for one in said.values())
    return SlotsPlayed(WorkflowTimes(times, encoded), said)
