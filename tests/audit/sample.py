"""Hand-made reports that contain every kind of entry, for testing the output formats of an audit.

No engine and no verdict is behind them. Independent of how a report is rendered.
"""

from __future__ import annotations

from typing import Any

from agentcho.audit.measurement import Ablation, Arm, Effect, Interval, Measurement, Probe
from agentcho.audit.report import (
    AuditReport,
    Blockage,
    Cell,
    Control,
    Edge,
    Finding,
    Place,
    ReaderVerdict,
    Release,
    Said,
    Subject,
)
from agentcho.audit.rules import RULES, fingerprint

SENTINEL = "zanzibar-at-dawn"
EXCUSE = "the paper's own setting (dana@example.org, until 2027-01-31)"
SCENARIO = "three-in-a-room"
HERE = Place(file="scenarios/three_in_a_room.py", line=41)
PLAYER = Place(file="agents/player.py", line=17)


def report(reveal: bool = False, **changes: Any) -> AuditReport:
    """A run of three agents with an entry of every kind."""
    drawn = tuple(said(reveal))
    whole = AuditReport(
        subject=subject(), conclusion="findings", reasons=("4 errors: AC001 1, AC002 1, AC003 1, AC004 1",),
        readers=readers(), matrix=matrix(), findings=findings(), edges=edges(), clean_edges=31,
        blockages=(
            Blockage(game=0, reader="bob", call="bob.2", message="alice.3", missing=("bob.0", "bob.1")),
            Blockage(game=1, reader="carol", call="carol.1", message="alice.3", missing=("carol.0",)),
        ),
        releases=(
            release("alice.3", "alice", "everyone", ("alice.0", "alice.2"), True),
            release("bob.2", "bob", "everyone", ("bob.0", "alice.1"), False),
        ),
        drawn_game=0, drawn=drawn, measurement=measurement(),
        controls=(
            Control(name="the swap moved logits", fired=True, detail="total variation 0.41 through reuse"),
            Control(name="enough games", fired=True, detail="12 games, 8 are needed"),
        ),
    )  # fmt: skip
    return whole.model_copy(update=changes)


def clean(**changes: Any) -> AuditReport:
    """A run without findings."""
    calm = tuple(row.model_copy(update={"verdict": "clean", "leaking": 0, "secrets_of": ()}) for row in readers())
    cells = tuple(cell.model_copy(update={"verdict": "clean", "leaking": 0}) for cell in matrix())
    nothing: dict[str, Any] = {
        "conclusion": "clean", "reasons": ("none of 43 readings carries what its reader may not read",),
        "readers": calm, "matrix": cells, "findings": (), "edges": (), "clean_edges": 43, "blockages": (),
        "releases": (), "measurement": None, "controls": (),
    }  # fmt: skip
    return report().model_copy(update=nothing | changes)


def inconclusive() -> AuditReport:
    """A report without findings in which a control did not fire."""
    silent = Control(name="the swap moved logits", fired=False, detail="no row changed at all")
    reasons = ("a control did not fire: the swap moved logits: no row changed at all",)
    return clean(conclusion="inconclusive", controls=(silent,), reasons=reasons)


def subject() -> Subject:
    return Subject(
        scenario=SCENARIO,
        source="runs/20260102-030405-three-in-a-room",
        mode="choreographed",
        leakage="audit",
        deterministic=False,
        planned=False,
        games=12,
        lost=("game 11 has no outcome",),
        agents=("alice", "bob", "carol"),
        environment={"python": "3.11.7", "engine model": "understudy", "options": "0123456789abcdef"},
        reproduce="agentcho audit runs/20260102-030405-three-in-a-room",
    )


def said(reveal: bool = False) -> list[Said]:
    """The messages of the drawn game: a shared brief, private prompts, a whisper, talk, decisions."""
    everyone = "everyone"
    return [
        _said("brief", None, everyone, (), "system", "prefill", 38, reveal),
        _said("alice.0", "alice", ["alice"], (), "system", "prefill", 187, reveal),
        _said("bob.0", "bob", ["bob"], (), "system", "prefill", 197, reveal),
        _said("carol.0", "carol", ["carol"], (), "system", "prefill", 120, reveal),
        _said("alice.1", "alice", ["alice", "bob"], ("brief", "alice.0"), "assistant", "decode", 41, reveal),
        _said("alice.2", "alice", ["alice"], ("brief", "alice.0", "alice.1"), "assistant", "decode", 89, reveal),
        _said("bob.1", "bob", ["bob"], ("brief", "bob.0", "alice.1"), "assistant", "decode", 77, reveal),
        _said("alice.3", "alice", everyone, ("brief", "alice.0", "alice.2"), "assistant", "decode", 42, reveal),
        _said("bob.2", "bob", everyone, ("brief", "bob.0", "alice.1", "alice.3"), "assistant", "decode", 95, reveal),
        _said("carol.1", "carol", everyone, ("carol.0", "alice.3", "bob.2"), "assistant", "decode", 152, reveal),
        _said("bob.3", "bob", ["bob"], ("bob.0", "alice.3", "bob.2", "carol.1"), "assistant", "decode", 7, reveal),
        _said("carol.2", "carol", ["carol"], ("alice.2", "bob.2", "carol.1"), "assistant", "decode", 7, reveal),
    ]


def _said(
    id: str,
    author: str | None,
    audience: str | list[str],
    parents: tuple[str, ...],
    role: str,
    kind: Any,
    tokens: int,
    reveal: bool,
) -> Said:
    words = f"<b>{id}</b> & {SENTINEL}" if reveal else None
    return Said(
        id=id, kind=kind, role=role, author=author, audience=audience, parents=parents, tokens=tokens,
        digest=f"{len(id):02d}5d892582e87d"[:16], text=words,
    )  # fmt: skip


def readers() -> tuple[ReaderVerdict, ...]:
    return (
        ReaderVerdict(reader="carol", verdict="direct", readings=16, leaking=9, secrets_of=("alice", "bob")),
        ReaderVerdict(reader="bob", verdict="transitive", readings=24, leaking=6, secrets_of=("alice",)),
        ReaderVerdict(reader="alice", verdict="clean", readings=12, leaking=0, secrets_of=()),
    )


def matrix() -> tuple[Cell, ...]:
    return (
        Cell(reader="alice", author="alice", verdict="clean", readings=9, leaking=0),
        Cell(reader="alice", author="scenario", verdict="clean", readings=3, leaking=0),
        Cell(reader="bob", author="alice", verdict="transitive", readings=9, leaking=5),
        Cell(reader="bob", author="bob", verdict="clean", readings=11, leaking=0),
        Cell(reader="bob", author="carol", verdict="unlabelled", readings=4, leaking=1),
        Cell(reader="carol", author="alice", verdict="direct", readings=6, leaking=6),
        Cell(reader="carol", author="bob", verdict="positional", readings=5, leaking=3),
        Cell(reader="carol", author="carol", verdict="clean", readings=5, leaking=0),
    )


def edges() -> tuple[Edge, ...]:
    def edge(game: int, reader: str, call: str, message: str, verdict: Any, path: tuple[str, ...]) -> Edge:
        return Edge(
            game=game, reader=reader, call=call, encoding=9, message=message, recipe="author", verdict=verdict,
            secrets=path[-1:], path=path, hops=max(len(path) - 1, 0),
        )  # fmt: skip

    return (
        edge(0, "bob", "bob.2", "alice.3", "transitive", ("alice.3", "alice.2")),
        edge(0, "carol", "carol.1", "alice.3", "transitive", ("alice.3", "alice.0")),
        edge(0, "carol", "carol.1", "bob.2", "positional", ("bob.2", "alice.1")),
        edge(0, "bob", "bob.3", "carol.1", "unlabelled", ()),
        edge(0, "carol", "carol.2", "alice.2", "direct", ("alice.2",)),
        edge(1, "carol", "carol.2", "alice.2", "direct", ("alice.2",)),
    )


def findings() -> tuple[Finding, ...]:
    return (
        finding("AC001", "carol", "alice", "alice", ("alice.2",), place=HERE, status="new"),
        finding("AC002", "bob", "alice", "alice", ("alice.3", "alice.2"), place=HERE, status="unchanged"),
        finding("AC002", "carol", "alice", "bob", ("bob.2", "alice.1", "alice.0"), status="gone"),
        finding("AC003", "carol", "alice", "bob", ("bob.2", "alice.1"), place=PLAYER, places=(HERE, None)),
        finding("AC002", "carol", "alice", "alice", ("alice.3", "alice.0"), suppressed=EXCUSE),
        finding("AC004", "bob", None, "carol", (), place=PLAYER),
        finding("AC005"),
        finding("AC006", None, "alice", "bob", ("bob.2", "alice.1"), place=HERE, places=(HERE, PLAYER)),
        finding("AC009", "carol", "bob", None, ()),
        finding("AC007", None, "alice", "alice", ("alice.3", "alice.0"), place=HERE),
        finding("AC007", None, "bob", "bob", ("bob.2", "bob.0"), place=HERE),
        finding("AC008", "bob", None, None, ("alice.3",)),
    )


def finding(
    rule: str,
    reader: str | None = None,
    owner: str | None = None,
    carrier: str | None = None,
    path: tuple[str, ...] = (),
    **more: Any,
) -> Finding:
    """One finding; its sentence contains characters that every format must escape."""
    return Finding(
        rule=rule, level=RULES[rule].level, message=f"{RULES[rule].title}: {reader} <- {carrier} & {owner}",
        reader=reader, owner=owner, carrier=carrier, path=path, secrets=path[-1:], hops=max(len(path) - 1, 0),
        games=12, edges=36, fingerprint=fingerprint(rule, SCENARIO, reader, owner, carrier), **more,
    )  # fmt: skip


def release(message: str, author: str, audience: str, sources: tuple[str, ...], canonical: bool) -> Release:
    return Release(
        game=0,
        message=message,
        author=author,
        audience=audience,
        sources=sources,
        digest="40fe3895a249c818",
        canonical=canonical,
    )


def measurement() -> Measurement:
    pairs = (("bob", "alice", 0.41), ("carol", "alice", 0.22))
    arms: tuple[tuple[Arm, float], ...] = (
        ("reuse", 1.0),
        ("floor", 1e-7),
        ("enforce", 0.0),
        ("plain", 1.9),
        ("stale", 0.6),
    )
    return Measurement(
        deterministic=True,
        model="understudy",
        seed=0,
        games=12,
        noise=4.1e-8,
        effects=tuple(
            effect(reader, owner, swap, arm, size * share * (1.0 if swap == "same-length" else 1.1))
            for reader, owner, size in pairs
            for swap in ("same-length", "other-length")
            for arm, share in arms
        ),
        probes=tuple(probe(source, layer) for source in ("author", "audience", "text") for layer in _layers(source)),
        ablations=tuple(
            ablation(seen, count) for seen, count in (("all", 31), ("system", 36), ("plan", 33), ("public", 44))
        ),
        notes=("accuracies of the probe are a lower bound on the channel",),
    )


def _layers(source: str) -> tuple[int | None, ...]:
    return (None,) if source == "text" else (0, 1, 2, 3)


def effect(reader: str, owner: str, swap: Any, arm: Arm, size: float) -> Effect:
    flips = round(60 * min(size, 0.9) / 3)
    return Effect(
        reader=reader, owner=owner, swap=swap, arm=arm, games=12, rows=340, tv_max=min(size, 0.97), tv_mean=size / 4,
        tv_interval=_interval(size / 4), kl_max=3 * size * size, kl_mean=size * size / 2,
        kl_interval=_interval(size * size / 2), decisions=60, flips=flips,
        flip_interval=Interval(low=max(0.0, flips / 60 - 0.06), high=flips / 60 + 0.09, method="clopper-pearson"),
        mcnemar_p=1.0 if not flips else 0.02, holm_p=1.0 if not flips else 0.04,
    )  # fmt: skip


def _interval(middle: float) -> Interval:
    return Interval(low=middle * 0.7, high=middle * 1.4, method="bootstrap clustered by game")


def probe(source: Any, layer: int | None) -> Probe:
    hit = {"author": 0.62 + 0.09 * (layer or 0), "audience": 0.5, "text": 0.5}[source]
    return Probe(
        owner="alice", source=source, layer=layer, classes=2, trained=160, tested=80, accuracy=hit,
        interval=Interval(low=hit - 0.1, high=min(1.0, hit + 0.09), method="clopper-pearson"), chance=0.5, control=0.51,
        bits=max(0.0, hit - 0.6),
    )  # fmt: skip


def ablation(seen: Any, count: int) -> Ablation:
    return Ablation(
        reader="bob", owner="alice", seen=seen, outcome="decision", choice="COOPERATE", games=60, count=count,
        rate=count / 60,
        interval=Interval(low=count / 60 - 0.12, high=count / 60 + 0.12, method="clopper-pearson"),
        flips=abs(31 - count),
        mcnemar_p=0.03, holm_p=0.06,
    )  # fmt: skip
