"""Measures whether our arms read as the baseline does: the divergence of their next-token distributions from the
baseline's, on the same forced texts.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcho.config import ReusePolicy
from agentcho.lab.bench.arms import policy
from agentcho.lab.bench.result import Figures
from agentcho.lab.compare.fidelity import Arm, apart, rows
from agentcho.lab.timing import alone
from agentcho.protocol.call import EnginePort
from agentcho.records.trace import Workflow

RANDOM = "shape:"
"""The prefix of the names of models with random weights, whose words measure nothing."""


@alone
def with_words(engine: EnginePort, workflow: Workflow, figures: Sequence[Figures]) -> list[Figures]:
    """The figures of one workflow; those of our arms get "kl", the mean KL(baseline || arm) in nats a token, and
    "agree", the share of tokens with the same likeliest one. Arms of others read what the baseline reads."""
    ours = {each.arm: policy(each.arm) for each in figures if each.values}
    reused = {name: reuse for name, reuse in ours.items() if reuse is not None and reuse.mode != "baseline"}
    if not reused or engine.fingerprint["model"].startswith(RANDOM):
        return list(figures)
    before = rows(workflow, Arm(ReusePolicy("baseline", "audit"), engine))
    found = dict[ReusePolicy, dict[str, tuple[float, ...]]]()
    alike = {name: reuse._replace(speculate=False) for name, reuse in reused.items()}  # speculation changes no word
    for reuse in dict.fromkeys(alike.values()):
        game = apart(before, rows(workflow, Arm(reuse, engine)))
        found[reuse] = {"kl": (float(game.kl.mean()),), "agree": (float(game.same.mean()),)}
    more = {name: found[reuse] for name, reuse in alike.items()}
    return [each.model_copy(update={"values": {**each.values, **more.get(each.arm, {})}}) for each in figures]
