"""Computes the log-probabilities of the tokens that a step sampled, for the decodes that ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listed

from agentcho.engine.forward_plan import FaultAttribution, ForwardPlan, LogprobRequest
from agentcho.engine.runner_port import Runner
from agentcho.protocol.call import CallFailure, EncodingId, Logprobs, SampledToken


def weigh(
    runner: Runner, blame: FaultAttribution, plan: ForwardPlan, spoken: Listed[SampledToken]
) -> tuple[list[SampledToken], list[CallFailure]]:
    """The sampled tokens with the log-probabilities that `plan.weighed` asks for, and the decodes that fail because
    theirs cannot be computed. In the deterministic profile each row is computed alone."""
    asked = [each for each in spoken if _is_new(each, plan.weighed)]
    found, failed = dict[EncodingId, Logprobs](), list[CallFailure]()
    stride = 1 if plan.exact else max(1, len(asked))
    for begin in range(0, len(asked), stride):
        found |= _found(
            runner=runner, blame=blame, weighed=plan.weighed, asked=asked[begin : begin + stride], failed=failed
        )
    lost = {failure.id for failure in failed}
    new = {id(each) for each in asked}
    whole = (each for each in spoken if each.id not in lost)
    return [each._replace(likely=found.get(each.id, ())) if id(each) in new else each for each in whole], failed


def _is_new(spoken: SampledToken, weighed: Mapping[EncodingId, LogprobRequest]) -> bool:
    """Whether this is a newly sampled token of a decode that asks, and not only text that was held back before, or a
    token that the template writes after a thought."""
    return spoken.id in weighed and spoken.nth == weighed[spoken.id].before


def _found(
    runner: Runner,
    blame: FaultAttribution,
    weighed: Mapping[EncodingId, LogprobRequest],
    asked: Listed[SampledToken],
    failed: list[CallFailure],
) -> dict[EncodingId, Logprobs]:
    """The log-probabilities of these tokens, computed at once. If that fails, they are computed one by one, and decodes
    that fail alone are added to `failed`."""
    rows = [weighed[each.id].row for each in asked]
    try:
        found = runner.likely(rows, [(each.token, weighed[each.id].most) for each in asked])
        return {each.id: likely for each, likely in zip(asked, found, strict=True)}
    except Exception as error:
        ours = blame.of(error)
    if len(asked) > 1:
        return {
            id: each
            for one in asked
            for id, each in _found(runner=runner, blame=blame, weighed=weighed, asked=[one], failed=failed).items()
        }
    failed.append(CallFailure(asked[0].id, ours))
    return {}
