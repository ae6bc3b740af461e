"""Shows measurements as small tables: the worst case first, an interval beside every share and mean.

Independent of verdicts, which a measurement never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentcho.audit.measurement import Ablation, Arm, Effect, Interval, Measurement, Probe
from agentcho.audit.wording import ARMS, SOURCES, many, number
from agentcho.display.safe import inline
from agentcho.display.text_table import TextTable, table
from agentcho.message import natural

ORDER: tuple[Arm, ...] = ("reuse", "stale", "plain", "floor", "enforce")
PAIRS = 6


def measured(measurement: Measurement | None) -> Iterator[RenderableType]:
    """The tables of a measurement, if there is one."""
    if measurement is None:
        return
    profile = "deterministic" if measurement.deterministic else "fast"
    told = (many(measurement.games, "game"), measurement.model, f"{profile} profile")
    yield Text(" · ".join((*map(inline, told), f"noise floor {number(measurement.noise)}")), style="dim")
    yield from _tables([*effects(measurement.effects), probes(measurement.probes), *ablations(measurement.ablations)])
    if measurement.notes:
        yield Text()
    yield _notes(measurement.notes)


def _notes(notes: Iterable[str]) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    for note in notes:
        grid.add_row(Text("·", style="dim"), Text(inline(note), style="dim"))
    return grid


def _tables(sheets: Iterable[TextTable]) -> Iterator[RenderableType]:
    for sheet in sheets:
        if sheet.rows:
            grid = table(sheet)
            grid.title = None  # a title would wrap at the width of the table
            yield from (Text(), Text(inline(sheet.title), style="underline"), grid)


def effects(found: Iterable[Effect]) -> list[TextTable]:
    """One table per pair, the largest leak first. One row per arm, for the swap with the larger effect."""
    pairs: dict[tuple[str, str], dict[Arm, Effect]] = {}
    for effect in found:
        arms = pairs.setdefault((effect.reader, effect.owner), {})
        arms[effect.arm] = max(effect, arms.get(effect.arm, effect), key=lambda one: one.tv_max)
    ordered = sorted(pairs.items(), key=lambda item: (-_leak(item[1]), *map(natural, item[0])))
    sheets = [_pair(reader, owner, arms) for (reader, owner), arms in ordered[:PAIRS]]
    more = TextTable(
        f"and {len(ordered) - PAIRS} more pairs, none of which leaks more: see --json or --html", ("",), (("",),)
    )
    return [*sheets, *([more] if len(ordered) > PAIRS else [])]


def _leak(arms: dict[Arm, Effect]) -> float:
    return arms["reuse"].tv_max if "reuse" in arms else 0.0


def _pair(reader: str, owner: str, arms: dict[Arm, Effect]) -> TextTable:
    columns = ("", "worst TV", "mean TV, 95 %", "worst KL", "decisions changed")
    rows = tuple(_effect(arms[arm]) for arm in ORDER if arm in arms)
    return TextTable(f"{reader}, if the secrets of {owner} are swapped", columns, rows)


def _effect(effect: Effect) -> tuple[str, ...]:
    mean = effect.tv_interval.shown(number)
    changed = f"{effect.flips} of {effect.decisions}, {share(effect.flip_interval)}" if effect.decisions else "-"
    return ARMS[effect.arm].name, number(effect.tv_max), mean, number(effect.kl_max), changed


def probes(found: Iterable[Probe]) -> TextTable:
    """One row per owner and source, for the layer from which the secrets are read best."""
    best: dict[tuple[str, str], Probe] = {}
    for probe in found:
        key = probe.owner, probe.source
        best[key] = max(best.get(key, probe), probe, key=lambda one: one.accuracy)
    rows = tuple(_probe(probe) for probe in sorted(best.values(), key=lambda one: -one.accuracy))
    columns = ("words of", "read from", "layer", "accuracy, 95 %", "chance", "shuffled", "bits")
    return TextTable("what a linear probe finds, in its best layer", columns, rows, words=2)


def _probe(probe: Probe) -> tuple[str, ...]:
    layer = "-" if probe.layer is None else str(probe.layer)
    accuracy = f"{probe.accuracy:.0%}, {share(probe.interval)}"
    told = f"{probe.chance:.0%}", f"{probe.control:.0%}", f"{probe.bits:.2f}"
    return probe.owner, SOURCES[probe.source], layer, accuracy, *told


class AblationTable(NamedTuple):
    """The subject of one table of ablations."""

    reader: str
    owner: str
    outcome: str
    choice: str


def ablations(found: Iterable[Ablation]) -> list[TextTable]:
    """One table per pair, outcome and choice. One row per set of messages that the public words were encoded over."""
    groups: dict[AblationTable, list[Ablation]] = {}
    for one in found:
        about = AblationTable(reader=one.reader, owner=one.owner, outcome=one.outcome, choice=one.choice)
        groups.setdefault(about, []).append(one)
    columns = ("", "share, 95 %", "changed", "Holm p")
    return [
        TextTable(
            f"{about.reader}'s {about.outcome} for {about.choice}, if words of {about.owner} see",
            columns,
            tuple(map(_ablation, rows)),
        )
        for about, rows in groups.items()
    ]


def _ablation(one: Ablation) -> tuple[str, ...]:
    rate = f"{one.count} of {one.games}, {share(one.interval)}"
    return one.seen, rate, str(one.flips), number(one.holm_p)


def share(interval: Interval) -> str:
    """Format an interval of shares."""
    return interval.shown("{:.0%}".format)
