"""Runs the whole proof: every workflow unchanged and with one agent's secrets swapped, under audit and enforce.
Independent of files and the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentcho.audit.measurement import Swapped
from agentcho.errors import AudienceError, RecordBroken
from agentcho.lab.measure.play import Play, of_workflow
from agentcho.lab.prove.kept import NOT_IN_IT, WORDLESS, Secret, changed, secrets
from agentcho.lab.prove.playing import Played, Unplayable, played
from agentcho.lab.prove.proof import Compared, Digests, Proof, Skipped, Waits
from agentcho.protocol.progress import ProgressCallback, counted, no_progress
from agentcho.records.environment import machine_info, source_digests, versions
from agentcho.records.trace import Workflow

STRIDE = 64


def prove(
    workflows: Sequence[Workflow],
    engine: Any,
    *,
    source: str = "",
    of: str | None = None,
    swap: Swapped = "same-length",
    stride: int = STRIDE,
    seed: int = 0,
    tell: ProgressCallback = no_progress,
) -> Proof:
    """Play each workflow under audit and under enforce, unchanged and with the secrets of `of`, or of each agent in
    turn, swapped; hash the logits of every other agent.

    `engine` is an `Engine` that nothing else uses meanwhile; all encodings made are released. Words for a swap come
    from another of the workflows. `tell` receives the progress in workflows. `AudienceError` if no workflow has an
    agent `of`.
    """
    if of is not None and not any(of in workflow.agents for workflow in workflows):
        raise AudienceError(f"there is no agent {of}", {name for one in workflows for name in one.agents})
    work = _Proving(workflows=workflows, engine=engine, swap=swap, stride=stride, seed=seed)
    told = counted(tell, "workflows", len(workflows))
    for game in range(len(workflows)):
        work.one(game, of)
        told(game + 1)
    return Proof(
        source=source,
        model=engine.fingerprint.get("model", "unknown"),
        seed=seed,
        swap=swap,
        stride=stride,
        workflows=len(workflows),
        compared=tuple(work.compared),
        skipped=tuple(work.skipped),
        waits=tuple(work.waits),
        environment=versions()
        | machine_info()
        | source_digests()
        | {"weights": engine.fingerprint.get("weights", "unknown")},
        unfinished=tuple(workflow.id for workflow in workflows if workflow.unfinished),
    )


class _Proving:
    """The state of a proof."""

    def __init__(self, workflows: Sequence[Workflow], engine: Any, swap: Swapped, stride: int, seed: int) -> None:
        self._workflows = workflows
        self._engine = engine
        self._swap = swap
        self._stride = stride
        self._seed = seed
        self._plays: list[Play] = [of_workflow(one, engine, game) for game, one in enumerate(workflows)]
        self.compared: list[Compared] = []
        self.skipped: list[Skipped] = []
        self.waits: list[Waits] = []

    def one(self, game: int, of: str | None) -> None:
        """Run one workflow: each owner's secrets, from everyone else."""
        workflow, play = self._workflows[game], self._plays[game]
        if of is not None and of not in workflow.agents:
            self.skipped.append(Skipped(workflow=workflow.id, owner=of, reader=None, why=NOT_IN_IT))
            return
        wanted = list[Secret]()
        for owner in workflow.agents if of is None else (of,):
            others = [agent for agent in workflow.agents if agent != owner]
            found, why = secrets(play, owner, others)
            wanted += found
            self.skipped += [
                Skipped(workflow=workflow.id, owner=owner, reader=reader, why=reason) for reader, reason in why.items()
            ]
        if wanted:
            self._try(game, wanted)

    def _try(self, game: int, wanted: Sequence[Secret]) -> None:
        workflow = self._workflows[game]
        try:
            enforce, audit = self._play(workflow, "enforce"), self._play(workflow, "audit")
            baseline = played(
                workflow=workflow, engine=self._engine, stride=self._stride, leakage="audit", mode="baseline"
            )
        except Unplayable as reason:
            self.skipped.append(Skipped(workflow=workflow.id, owner=None, reader=None, why=str(reason)))
            return
        waited = {"baseline": baseline.waited, "audit": audit.waited, "enforce": enforce.waited}
        self.waits.append(Waits(workflow=workflow.id, decodes=enforce.decodes, **waited))
        for secret in wanted:
            try:
                self.compared += self._compare(game, secret, audit, enforce)
            except (Unplayable, RecordBroken) as reason:
                self._skip(game, secret, str(reason))

    def _compare(self, game: int, secret: Secret, audit: Played, enforce: Played) -> list[Compared]:
        workflow = self._workflows[game]
        tokenizer = self._engine.fingerprint["tokenizer"]
        other, swapped = changed(
            workflow=workflow,
            plays=self._plays,
            game=game,
            secret=secret,
            swap=self._swap,
            seed=self._seed,
            tokenizer=tokenizer,
        )
        if not swapped & secret.through:
            self._skip(game, secret, WORDLESS)
            return []
        enforced, audited = self._play(other, "enforce"), self._play(other, "audit")
        return [
            Compared(
                workflow=workflow.id,
                owner=secret.owner,
                reader=reader,
                swapped=tuple(sorted(swapped)),
                rows=enforce.agents[reader].rows,
                audit=_digests(audit, audited, reader),
                enforce=_digests(enforce, enforced, reader),
            )
            for reader in secret.readers
        ]

    def _skip(self, game: int, secret: Secret, why: str) -> None:
        id = self._workflows[game].id
        self.skipped += [Skipped(workflow=id, owner=secret.owner, reader=name, why=why) for name in secret.readers]

    def _play(self, workflow: Workflow, leakage: Any) -> Played:
        return played(workflow, self._engine, self._stride, leakage)


def _digests(before: Played, after: Played, reader: str) -> Digests:
    return Digests(before=before.agents[reader].digest, after=after.agents[reader].digest)
