"""`agentcho bench leaks`: what a public sentence reveals of a secret, by reading mode and by attack."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from agentcho.cli.options import GivenOptions
from agentcho.display.progress import progress
from agentcho.extras import require
from agentcho.lab.commands import workflows as speed
from agentcho.lab.leaks.ways import PLAIN, REPAIRED, REUSE, USUAL
from agentcho.protocol.progress import heard

if TYPE_CHECKING:
    from agentcho.lab.leaks.measured import AttackOptions
    from agentcho.lab.leaks.result import LeaksResult, Secrets

WAY = (
    f"One or more of {', '.join(PLAIN)}, and {REUSE}+REPAIR, such as {REPAIRED[0]}; default: {', '.join(USUAL)}. Ways "
    "that learn from earlier sentences are left out with --earlier 0."
)
ATTACK = "One or more of linear, mlp, inversion, collision, asked; default: all."
KIND = "One or more of codes, names, plans, preferences, vaults; default: all."
SENTENCE = "Alice's public words: the same for every secret, or what the model says after the secret."
EARLIER = (
    "Number of other public sentences of Alice before the one under attack. Repairs with anchors learn from these."
)
CANDIDATES = "Number of secrets for which a collision search encodes the sentence; at least all that are tested."
TEMPLATES = "Number of questions that the model is asked; the best one on secrets outside of the test is kept."
AGAIN = "Continue the interrupted benchmark of --json FILE from FILE.part."
Names = list[str] | None


def leaks(
    *,
    model: speed.Model = speed.UNDERSTUDY,
    dtype: speed.Dtype = "auto",
    checked: speed.Checked,
    way: Annotated[Names, typer.Option(help=WAY, show_default=False)] = None,
    attack: Annotated[Names, typer.Option(help=ATTACK, show_default=False)] = None,
    kind: Annotated[Names, typer.Option(help=KIND, show_default=False)] = None,
    sentence: Annotated[Literal["forced", "natural"], typer.Option(help=SENTENCE)] = "forced",
    n: Annotated[
        int, typer.Option("-n", "--secrets", min=20, help="Number of secrets per kind; the last quarter is tested.")
    ] = 2000,
    candidates: Annotated[int, typer.Option(help=CANDIDATES, min=2)] = 2048,
    templates: Annotated[int, typer.Option(help=TEMPLATES, min=1, max=20)] = 20,
    earlier: Annotated[int, typer.Option(help=EARLIER, min=0, max=8)] = 3,
    repeats: speed.Repeats = 3,
    seed: speed.Seed = 1,
    json_: speed.Json = None,
    resume: Annotated[bool, typer.Option("--resume", help=AGAIN)] = False,
) -> None:
    """Measure how many bits of a secret a public sentence gives away, by way of reading and by attack."""
    require("to attack encodings", "lab")
    from agentcho.lab.leaks.guesses import Effort
    from agentcho.lab.leaks.measured import ATTACKS, AttackOptions
    from agentcho.lab.leaks.secrets import KINDS
    from agentcho.lab.leaks.ways import usual, ways

    kinds, attacks = (tuple(dict.fromkeys(given)) for given in (kind or KINDS, attack or ATTACKS))
    effort = Effort(candidates, templates)
    asked = AttackOptions(
        kinds, tuple(ways(way or usual(earlier))), attacks, n, sentence, earlier, seed, repeats, effort
    )
    asked.check()
    file = speed.result_file(json_, "leaks", resume)
    with speed.going_on(file):
        found = _measured(model=model, dtype=dtype, asked=asked, file=file, resume=resume, checked=checked)
    from agentcho.lab.display.leaks import sheets

    typer.echo(speed.text(sheets(found)))
    for claim in found.claims:
        typer.echo(f"\n{claim.way}: {claim.verdict}. {claim.sentence[0].upper()}{claim.sentence[1:]}.")


def _measured(
    model: str, dtype: str, asked: AttackOptions, file: Path, resume: bool, checked: GivenOptions
) -> LeaksResult:
    """Measure, keeping a partial file beside the result, and write the result."""
    from agentcho.lab.leaks.measured import PartialLeaks, costs, digest, measure
    from agentcho.lab.timing import stoppable
    from agentcho.records.environment import machine_info, source_digests, versions
    from agentcho.runner.engine import Engine

    settings = asked.settings | {"model": model, "dtype": dtype, "digest": digest()} | versions()
    kept = PartialLeaks.begin(file, resume, settings)
    with progress("bench leaks", sys.stderr) as told:
        engine = Engine.load(model, dtype=dtype, **checked, tell=told.tell)
        kept.check_engine(engine.fingerprint)
        secrets = stoppable(lambda check: measure(engine, asked, kept, heard(told.tell, check)))
        timed = costs(engine, asked, told.tell)
    where: dict[str, Any] = {key: engine.fingerprint[key] for key in ("model", "dtype", "device")}
    where |= {"digest": digest(), "machine": machine_info() | versions() | source_digests()}
    found = _result(asked=asked, secrets=secrets, kept=kept, timed=timed, where=where)
    speed.finished(file, found.model_dump_json(indent=1) + "\n")
    kept.done()
    return found


def _result(
    asked: AttackOptions, secrets: tuple[Secrets, ...], kept: Any, timed: Any, where: dict[str, Any]
) -> LeaksResult:
    from agentcho.lab.leaks.judged import claims, judge
    from agentcho.lab.leaks.result import LeaksResult

    rows = judge(kept.outcomes(asked), asked.seed)
    return LeaksResult(
        **where,
        seed=asked.seed,
        n=asked.n,
        sentence=asked.sentence,
        earlier=asked.earlier,
        candidates=asked.effort.candidates,
        templates=asked.effort.templates,
        command=speed.repeating("leaks"),
        secrets=secrets,
        rows=rows,
        claims=claims(rows),
        costs=timed,
    )
