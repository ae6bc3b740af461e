"""Two runs on one page, to be compared game by game.

Does not know: HTML, how messages are paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentcho.records.record import SavedRun
from agentcho.viewer.page_content import PageContent, PageSelection, ShownGame, page_content, page_head


def beside(first: Sequence[SavedRun], second: Sequence[SavedRun], chosen: PageSelection) -> PageContent:
    """The games of both, those of `first` first. Raises what `page_content` raises for either."""
    names = [_name(runs, chosen, place) for runs, place in ((first, "first"), (second, "second"))]
    one, two = page_content(first, chosen).talks, page_content(second, chosen).talks
    talks = (*_under(names[0], one, 0), *_under(names[1], two, len(first)))
    head = page_head([*first, *second], None, chosen.eyes)
    head |= {"beside": True, "title": " and ".join(dict.fromkeys((first[0].info.scenario, second[0].info.scenario)))}
    return PageContent(head | ({} if chosen.eyes is not None else {"run": " beside ".join(names)}), talks)


def _name(runs: Sequence[SavedRun], chosen: PageSelection, place: str) -> str:
    """What a side is called. A reader gets no name, for that may say which options its games had."""
    if chosen.eyes is not None:
        return f"{place} run"
    return runs[0].info.id if len(runs) == 1 else runs[0].path.parent.parent.name


def _under(name: str, talks: Sequence[ShownGame], before: int) -> Iterator[ShownGame]:
    """The games under the name of their side; their runs have as many `before` them."""
    for talk in talks:
        group = f"{name}: {talk.head['group']}" if talk.head["group"] else name
        run = {} if "run" not in talk.head else {"run": talk.head["run"] + before}
        yield talk._replace(head=talk.head | {"group": group} | run)
