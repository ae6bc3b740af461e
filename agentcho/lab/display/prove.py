"""Shows a proof in the terminal: its conclusion first, then who was compared, then the digests themselves.

Without a terminal, prints the same lines as plain text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentcho.audit.wording import many
from agentcho.display import Kind
from agentcho.display.parts import section, show_parts
from agentcho.display.safe import inline
from agentcho.lab.prove.proof import Compared, Conclusion, Digests, Proof
from agentcho.lab.prove.wording import first_tokens, headline, missing, played, schedule, shown, why_not

MOST = 12
SHORT = 10
TONES: dict[Conclusion, str] = {"holds": "green", "broken": "red", "inconclusive": "yellow"}


def show(proof: Proof, kind: Kind | None, file: IO[str]) -> None:
    """Print it; see `show_parts`."""
    show_parts(_parts(proof), kind, file)


def _parts(proof: Proof) -> Iterator[RenderableType]:
    found = headline(proof)
    yield Text.assemble((found.word, f"bold {TONES[proof.conclusion]}"), ": ", (inline(found.sentence), "bold"))
    yield Text(inline(played(proof)), style="dim")
    yield Text(inline(schedule(proof)), style="red" if proof.told else "dim" if proof.free is None else "green")
    if missing(proof):
        yield Text(inline(missing(proof)), style="yellow")
    if proof.compared:
        yield from section("readers", [_pairs(proof)])
        yield from section("first tokens", [Text(inline(line)) for line in first_tokens(proof)])
        yield from section("SHA-256 of all logits, before and after the swap", list(_digests(proof)))
    if why_not(proof):
        yield from section("nothing to compare", [_reasons(proof)])


def _grid(*heads: str) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        grid.add_column(Text(head), header_style="dim", no_wrap=True, overflow="ellipsis")
    return grid


def _pairs(proof: Proof) -> Table:
    grid = _grid("secrets of", "reader", "workflows", "under audit", "under enforce")
    for pair in proof.pairs:
        audit = _told(pair.moved, pair.compared, "yellow" if pair.moved < pair.compared else "")
        enforce = _told(pair.broken, pair.compared, "red" if pair.broken else "green")
        compared = Text(f"{pair.compared:,}", justify="right")
        grid.add_row(Text(inline(pair.owner)), Text(inline(pair.reader)), compared, audit, enforce)
    return grid


def _told(moved: int, of: int, style: str) -> Text:
    same = of - moved
    words = [f"{moved:,} differ" if moved else "", f"{same:,} equal" if same else ""]
    return Text(", ".join(filter(None, words)), style=style)


def _digests(proof: Proof) -> Iterator[RenderableType]:
    groups = shown(proof)
    wide = max(len(_way(one)) for one in proof.compared)
    for group in groups[:MOST]:
        sooner = "" if group.ratio is None else f"  baseline ÷ enforce {group.ratio:.2f}"
        yield Text.assemble(inline(group.workflow), (sooner, "dim"))
        for one in group.compared:
            yield Text.assemble(f"  {_way(one):<{wide}}  ", _both("audit", one.audit), "   ", _enforced(one))
    if len(groups) > MOST:
        yield Text(f"and {many(len(groups) - MOST, 'more workflow')}: see --json or --html", style="dim")


def _way(one: Compared) -> str:
    return inline(f"{one.owner} → {one.reader}")


def _enforced(one: Compared) -> Text:
    return Text.assemble((_both("enforce", one.enforce), TONES[one.conclusion]))


def _both(arm: str, digests: Digests) -> str:
    return f"{arm} {digests.before[:SHORT]} {'=' if digests.same else '≠'} {digests.after[:SHORT]}"


def _reasons(proof: Proof) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for number in range(3):
        grid.add_column(no_wrap=number < 2, overflow="fold")
    for reason in why_not(proof):
        grid.add_row(*(Text(inline(word)) for word in reason))
    return grid
