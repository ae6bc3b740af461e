"""Words a proof: its headline, and what its figures mean. Shared by all formats. Independent of terminal and HTML."""

from __future__ import annotations

from typing import NamedTuple

from agentcho.audit.measurement import Swapped
from agentcho.audit.wording import Headline, cut_short, listed, many
from agentcho.lab.prove.proof import Compared, Conclusion, Proof, Waits
from agentcho.message import natural

WORDS: dict[Conclusion, str] = {"holds": "HOLDS", "broken": "BROKEN", "inconclusive": "INCONCLUSIVE"}
SWAPS: dict[Swapped, str] = {
    "same-length": "swapped for others of the same length",
    "other-length": "swapped for others of another length",
    "absent": "left out altogether",
}
NOTES = (
    "Every word is forced, in the deterministic profile. The hash covers everything that a reader's words could have "
    "been chosen from: the logits of each row, as float32, message by message.",
    "Enforce holds where its digest is bit-identical and audit's is not. Equal digests alone would show nothing.",
    "First tokens: the seconds from when a message could be submitted to its first row, summed over all messages of "
    "an unchanged workflow. This is one play each, in this profile, and not a benchmark.",
    "In these plays the schedule is frozen: messages come in the recorded order, whatever was swapped. In a game, "
    "concurrent agents speak as soon as they are ready, so the order reveals how long private messages are. "
    "--free-schedule plays such games, with private messages of other lengths.",
    "A digest under audit depends on the secrets. Anyone with the model, the trace and a guess can check the guess.",
)


def headline(proof: Proof) -> Headline:
    """The conclusion as one word and one sentence; the sentence also says if a schedule reveals lengths."""
    found = _headline(proof)
    return found._replace(sentence=f"{found.sentence}; the schedule reveals hidden lengths") if proof.told else found


def _headline(proof: Proof) -> Headline:
    word, all_ = WORDS[proof.conclusion], len(proof.compared)
    if proof.conclusion == "broken":
        broken = [one for one in proof.compared if one.conclusion == "broken"]
        learns = listed(sorted({f"{one.reader} of {one.owner}" for one in broken}, key=natural))
        return Headline(word, f"under enforce something changed for a reader in {len(broken):,} of {all_:,}: {learns}")
    if not proof.compared:
        return Headline(word, "nothing could be compared, so this shows nothing")
    moved = sum(not one.audit.same for one in proof.compared)
    if proof.conclusion == "inconclusive":
        return Headline(word, f"nothing changed for any reader, not even under audit, in {many(all_, 'comparison')}")
    return Headline(word, f"bit-identical under enforce in {all_:,} of {all_:,}, different under audit in {moved:,}")


FROZEN = (
    "The schedule is frozen: every play keeps the recorded order of messages. What the order reveals is not tested; "
    "--free-schedule tests it."
)


def schedule(proof: Proof) -> str:
    """One sentence about the schedule."""
    if proof.free is None:
        return FROZEN
    if not proof.free:
        return "Played with a free schedule, no reader could be compared: no private message can have another length."
    of = many(len(proof.free), "comparison")
    if not proof.told:
        return f"Played with a free schedule, no reader observed a difference in {of}."
    who = listed(sorted({f"{one.reader} of {one.owner}" for one in proof.free if one.changed}, key=natural))
    told = f"the schedule reveals how long private messages are in {proof.told:,} of {of}: {who}"
    return f"Played with a free schedule, {told}."


def played(proof: Proof) -> str:
    """One line: what was played, and how."""
    parts = (proof.source, proof.model, "deterministic", many(proof.workflows, "workflow"))
    return " · ".join([*filter(None, parts), f"secrets {SWAPS[proof.swap]}"])


def missing(proof: Proof) -> str:
    """The incomplete workflows; empty if there are none."""
    return cut_short(proof.unfinished, proof.workflows)


def first_tokens(proof: Proof) -> list[str]:
    """The speedup of first tokens over the baseline in this proof; empty if nothing was played."""
    enforce, audit = proof.speedup("enforce"), proof.speedup("audit")
    if enforce is None or audit is None:
        return []
    decodes = many(sum(one.decodes for one in proof.waits), "message")
    took = {arm: sum(getattr(one, arm) for one in proof.waits) for arm in ("baseline", "enforce", "audit")}
    return [
        f"baseline's time to first token is {enforce:.2f} times enforce's and {audit:.2f} times audit's",
        f"{decodes} together: baseline {took['baseline']:.2f} s, enforce {took['enforce']:.2f} s, "
        f"audit {took['audit']:.2f} s; one play each, in the deterministic profile",
    ]


class Reason(NamedTuple):
    """Comparisons that could not be made: their number, the agents ("" if none in particular), and the reason."""

    often: str
    who: str
    why: str


def why_not(proof: Proof) -> list[Reason]:
    """Comparisons that show nothing because audit's digests are equal too, and those that could not be made."""
    idle = sum(one.conclusion == "inconclusive" for one in proof.compared)
    told = [Reason(many(idle, "comparison"), "", "equal under audit too, which shows nothing")] if idle else []
    return told + [
        Reason(many(count, "workflow"), f"{owner} → {reader}" if owner and reader else "", why)
        for (owner, reader, why), count in proof.reasons.items()
    ]


class Shown(NamedTuple):
    """One workflow: its comparisons, and baseline's time to first token over enforce's."""

    workflow: str
    ratio: float | None
    compared: tuple[Compared, ...]


def shown(proof: Proof) -> list[Shown]:
    """The comparisons by workflow; those where something differs under enforce first."""
    waits = {one.workflow: one for one in proof.waits}
    groups: dict[str, list[Compared]] = {}
    for one in proof.compared:
        groups.setdefault(one.workflow, []).append(one)
    found = [Shown(id, _ratio(waits[id]), tuple(own)) for id, own in groups.items()]
    return sorted(found, key=lambda one: all(each.enforce.same for each in one.compared))


def _ratio(waits: Waits) -> float | None:
    return waits.baseline / waits.enforce if waits.enforce else None
