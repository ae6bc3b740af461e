"""Checks that the measurements could have detected an effect, and that their noise is below the effects they found.

All controls are on rows of logits, never on decisions. A control that does not fire makes an audit inconclusive; none
can make it clean. Independent of engines and verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import sqrt

from agentcho.audit.measurement import Arm, Effect, Measurement, Probe, Swap
from agentcho.audit.report import Control
from agentcho.lab.measure.arms import SWAPS
from agentcho.lab.measure.play import Pair

FEWEST_GAMES = 8
ROUNDING = 0.01
"""In the fast profile rounding differs with the batch: enforcement may show this share of the effect of reuse."""


def controls(measurement: Measurement, asked: Iterable[Pair] = ()) -> tuple[Control, ...]:
    """All controls: the number of games, then each pair and swap, then the probes. Controls do not fire for a pair of
    `asked` of which nothing could be measured."""
    enough = measurement.games >= FEWEST_GAMES
    detail = f"{measurement.games} games; at least {FEWEST_GAMES} are needed"
    found = [Control(name="enough games", fired=enough, detail=detail)]
    pairs = dict.fromkeys([*((e.reader, e.owner) for e in measurement.effects), *asked])
    for (reader, owner), swap in product(pairs, SWAPS):
        own = {e.arm: e for e in measurement.effects if (e.reader, e.owner, e.swap) == (reader, owner, swap)}
        found += _pair(f"{reader} reads {owner}, {swap}", own, measurement.deterministic)
    found += [control for probe in measurement.probes for control in _probe(probe)]
    return tuple(found)


def _pair(name: str, arms: Mapping[Arm, Effect], deterministic: bool) -> Iterator[Control]:
    reuse, floor, plain, enforce = (arms.get(arm) for arm in ("reuse", "floor", "plain", "enforce"))
    noise = floor.tv_max if floor else 0.0
    yield _moved(f"ceiling ({name})", plain, noise, "the secret in plain sight")
    if reuse is None or reuse.carried:
        yield _moved(f"reuse ({name})", reuse, noise, "swapping the secret under audit")
    else:
        yield _still(f"out of reach ({name})", reuse, noise, "reuse carries nothing to it and moved its logits")
    if enforce is None:
        yield Control(name=f"enforce ({name})", fired=False, detail="no game could be encoded under enforcement")
        return
    seen = reuse.tv_max if reuse else 0.0
    allowed = 0.0 if deterministic else max(noise, ROUNDING * seen)
    yield _still(f"enforce ({name})", enforce, allowed, "enforced logits moved with the secret")


def _moved(name: str, effect: Effect | None, noise: float, what: str) -> Control:
    if effect is None or effect.rows == 0:
        return Control(name=name, fired=False, detail=f"{what} could not be tried: no rows to compare")
    detail = f"{what} moved a row by {effect.tv_max:.3g} in total variation; the noise floor is {noise:.3g}"
    return Control(name=name, fired=effect.tv_max > noise, detail=detail)


def _still(name: str, effect: Effect, allowed: float, fault: str) -> Control:
    held = effect.tv_max <= allowed
    bound = "exactly zero" if allowed == 0 else f"at most {allowed:.3g}"
    detail = f"largest total variation {effect.tv_max:.3g}, to be {bound}, over {effect.rows} rows"
    return Control(name=name, fired=held and effect.rows > 0, detail=detail if held else f"{fault}: {detail}")


def _probe(probe: Probe) -> Iterator[Control]:
    """A classifier trained on permuted labels, and one of the text alone, must be at chance; otherwise the probe
    reports information that is not there. The bound is four standard deviations of one run."""
    where = probe.source if probe.layer is None else f"{probe.source}, layer {probe.layer}"
    slack = 4 * sqrt(probe.chance * (1 - probe.chance) / max(probe.tested, 1))
    if abs(probe.control - probe.chance) > slack:
        detail = f"permuted labels were told with accuracy {probe.control:.2f}, chance is {probe.chance:.2f}"
        yield Control(name=f"probe of {probe.owner} ({where})", fired=False, detail=detail)
    if probe.source == "text":
        detail = f"the text alone tells with accuracy {probe.accuracy:.2f}, chance is {probe.chance:.2f}"
        fired = probe.accuracy <= probe.chance + slack
        yield Control(name=f"probe of {probe.owner} (text alone)", fired=fired, detail=detail)


def noise(effects: tuple[Effect, ...], swap: Swap | None = None) -> float:
    """The floor's largest total variation."""
    return max((e.tv_max for e in effects if e.arm == "floor" and swap in {None, e.swap}), default=0.0)
