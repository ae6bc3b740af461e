"""Measures the divergence of each reading mode from the baseline on recorded conversations: every recorded text is
forced, once per mode.

With a result file, scores are saved after each conversation. Independent of command lines and tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field

from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.compare.fidelity import Arm
from agentcho.lab.measure.stage import UNENCODABLE, why_not
from agentcho.lab.partial import PartialData, PartialResult
from agentcho.lab.reading.partitions import partitioned
from agentcho.lab.reading.result import ConversationScore, Estimate, NearerBaseline, Row
from agentcho.lab.stats import pooled
from agentcho.records.trace import Workflow

BASELINE = "baseline"
FOLDERS = ("lab/reading", "lab/measure", "provenance", "engine", "reuse", "runner", "protocol")
"""The folders whose code determines what is measured."""
AT_ONCE = 1 << 20
"""A stride longer than any text: each text is fed at once after its first token."""


class Conversation(NamedTuple):
    """One recorded conversation: its set, its name in the set, and what was said."""

    subject: str
    id: str
    workflow: Workflow


def named_apart(subject: str, workflows: Iterable[Workflow]) -> list[Conversation]:
    """The conversations of a set. If several have the same id, as in a concatenated file, all but the first get a
    numeric suffix."""
    seen, found = Counter[str](), list[Conversation]()
    for each in workflows:
        seen[each.id] += 1
        id = each.id if seen[each.id] == 1 else f"{each.id}#{seen[each.id]}"
        found.append(Conversation(subject, id, each))
    return found


class FidelityPart(PartialData):
    """The content of the file: the score of each conversation in each column."""

    format: Literal["agentcho-bench-fidelity-part/1"] = "agentcho-bench-fidelity-part/1"
    reads: list[ConversationScore] = Field(default_factory=list)


class PartialFidelity(PartialResult[FidelityPart]):
    """The partial results."""

    data_type = FidelityPart
    by = "`agentcho bench fidelity`"

    def known(self, conversation: Conversation) -> dict[str, ConversationScore]:
        """The saved scores of a conversation, by column."""
        own = (each for each in self.data.reads if (each.subject, each.id) == conversation[:2])
        return {each.column: each for each in own}

    def add(self, reads: Iterable[ConversationScore]) -> None:
        """Add scores, and save."""
        self.data.reads += reads
        self.save()


def measure(
    conversations: Sequence[Conversation], arms: Mapping[str, Arm], kept: PartialFidelity, tell: Callable[[int], None]
) -> tuple[ConversationScore, ...]:
    """Score every conversation in every arm, of which the first is the baseline; saved ones are not scored again.

    `tell` receives the number of finished conversations, before each arm; an exception that it raises ends the
    measurement. Raises what `replay` raises."""
    found = list[ConversationScore]()
    for number, each in enumerate(conversations):
        tell(number)
        known = kept.known(each)
        lacking = {name: arm for name, arm in arms.items() if name not in known}
        if lacking:
            fresh = dict(_read(each, arms[BASELINE], lacking, partial(tell, number)))
            kept.add(fresh.values())
            known |= fresh
        found += (known[name] for name in arms)
    tell(len(conversations))
    return tuple(found)


def _read(
    conversation: Conversation, baseline: Arm, lacking: Mapping[str, Arm], going_on: Callable[[], None]
) -> Iterable[tuple[str, ConversationScore]]:
    """The scores in the lacking columns. All are compared with the baseline: if that cannot read the conversation, it
    is left out in each of them."""
    try:
        before = _played(conversation.workflow, baseline)
    except UNENCODABLE as error:
        yield from ((name, _left_out(conversation, name, error)) for name in lacking)
        return
    logs = {id: log_probabilities(said.logits) for id, said in before.items()}
    for name, arm in lacking.items():
        going_on()
        try:
            own = before if name == BASELINE else _played(conversation.workflow, arm)
        except UNENCODABLE as error:
            yield name, _left_out(conversation, name, error)
        else:
            yield name, _summed(conversation, name, logs, own)


def _left_out(conversation: Conversation, name: str, error: Exception) -> ConversationScore:
    return ConversationScore(subject=conversation.subject, id=conversation.id, column=name, left_out=why_not(error))


def _played(workflow: Workflow, arm: Arm) -> Replayed:
    return replay(workflow, arm.engine, arm.reuse, stride=AT_ONCE)


def _summed(
    conversation: Conversation, name: str, before: Mapping[str, torch.Tensor], after: Replayed
) -> ConversationScore:
    """The sums over all rows: each token of a text, and the first token that closes it."""
    rows = same = 0
    kl = nats = 0.0
    for id, said in after.items():
        own, other = log_probabilities(said.logits), before[id]
        kl += float(divergence(other, own).sum())
        same += int((other.argmax(1) == own.argmax(1)).sum())
        message = said.entry.message
        start = message.sampled[0] if message.sampled else message.content[0]
        ids = torch.tensor(message.tokens[start : start + len(own)], device=own.device)
        nats -= float(own[torch.arange(len(ids)), ids].double().sum())
        rows += len(own)
    return ConversationScore(
        subject=conversation.subject,
        id=conversation.id,
        column=name,
        rows=rows,
        kl=kl,
        same=same,
        nats=nats,
        encoded=after.encoded,
        partitions=partitioned(after.entries) if name == BASELINE else {},
    )


def log_probabilities(logits: Any) -> torch.Tensor:
    """Log-probabilities of logits, `[rows, vocab]`, float32, in nats."""
    return torch.log_softmax(torch.as_tensor(logits).float(), dim=1)


def divergence(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """KL(before || after) of each row in nats, `[rows]`, from log-probabilities `[rows, vocab]`."""
    return torch.nn.functional.kl_div(after, before, log_target=True, reduction="none").sum(dim=1)


# -- results


def rows(reads: Sequence[ConversationScore], seed: int) -> tuple[Row, ...]:
    """One row per set and column, and one per set and partition of the baseline's cache. Intervals resample whole
    conversations."""
    before = {(each.subject, each.id): each for each in reads if each.column == BASELINE}
    kinds = dict.fromkeys((each.subject, each.column) for each in reads)
    own = {kind: [each for each in reads if (each.subject, each.column) == kind] for kind in kinds}
    found = list[Row]()
    for kind, read in own.items():
        found.append(_row(kind, read, before, seed))
        if kind[1] == BASELINE:
            found += (
                _partitioned(found[-1], name, read)
                for name in dict.fromkeys(name for each in read for name in each.partitions)
            )
    return tuple(found)


def _partitioned(row: Row, name: str, read: Sequence[ConversationScore]) -> Row:
    """The baseline's row, with the tokens that a cache in parts would encode."""
    counts = [(each.partitions[name], each.encoded) for each in read if name in each.partitions]
    ratio = float(np.median([parts / whole for parts, whole in counts]))
    return row.model_copy(update={"column": name, "encoded": sum(parts for parts, _ in counts), "ratio": ratio})


def _row(
    kind: tuple[str, str],
    read: Sequence[ConversationScore],
    known: Mapping[tuple[str, str], ConversationScore],
    seed: int,
) -> Row:
    own = [each for each in read if each.left_out is None]
    before = {each.id: known[each.subject, each.id] for each in own}
    reference = [before[each.id] for each in own]
    ratios = [each.encoded / other.encoded for each, other in zip(own, reference, strict=True)]
    more = [each.nats - other.nats for each, other in zip(own, reference, strict=True)]
    return Row(
        subject=kind[0],
        column=kind[1],
        games=len(own),
        left_out=len(read) - len(own),
        rows=sum(each.rows for each in own),
        kl=_share(own, [each.kl for each in own], seed),
        same=_share(own, [each.same for each in own], seed),
        nats=_share(own, [each.nats for each in own], seed),
        more=_share(own, more, seed),
        encoded=sum(each.encoded for each in own),
        ratio=float(np.median(ratios)) if ratios else 0.0,
    )


def steps(
    reads: Sequence[ConversationScore], pairs: Sequence[tuple[str, str]], seed: int
) -> tuple[NearerBaseline, ...]:
    """How much nearer to the baseline, in KL, the second column of each pair is than the first, by set."""
    found = list[NearerBaseline]()
    for subject in dict.fromkeys(each.subject for each in reads):
        kl = {(each.column, each.id): each for each in reads if each.subject == subject and each.left_out is None}
        for first, second in pairs:
            ids = [id for column, id in kl if column == first and (second, id) in kl]
            if not ids:
                continue
            own = [kl[first, id] for id in ids]
            nearer = [kl[first, id].kl - kl[second, id].kl for id in ids]
            share = sum(each > 0 for each in nearer)
            found.append(
                NearerBaseline(
                    subject=subject,
                    first=first,
                    second=second,
                    nearer=_share(own, nearer, seed),
                    share=share,
                    games=len(ids),
                )
            )
    return tuple(found)


def _share(own: Sequence[ConversationScore], sums: Sequence[float], seed: int) -> Estimate:
    """A mean per row, over all conversations."""
    counts = np.array([float(each.rows) for each in own])
    value, span = pooled(np.asarray(sums, dtype=np.float64), counts, seed)
    return Estimate(value=value, span=span)
