"""Two runs on one page, to be compared game by game.

Independent of HTML, and of how messages are paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentcho.records.record import SavedRun
from agentcho.viewer.page_content import PageContent, PageSelection, ShownGame, page_content, page_head

Names = tuple[str, str]


def beside(
    first: Sequence[SavedRun],
    second: Sequence[SavedRun],
    chosen: PageSelection,
    folders: Names = ("", ""),
    live: bool = False,
) -> PageContent:
    """The games of both, those of `first` first; `folders` are the names of the folders that contain these runs, empty
    for a single run; `live`: more may come. Raises what `page_content` raises for either."""
    names = [name or runs[0].info.id for name, runs in zip(folders, (first, second), strict=True)]
    if chosen.eyes is not None:  # a name may reveal the options of the games
        names = ["first run", "second run"]
    elif names[0] == names[1]:
        names = [f"{name} ({side})" for name, side in zip(names, ("left", "right"), strict=True)]
    one, two = page_content(first, chosen, live).talks, page_content(second, chosen, live).talks
    talks = (*_under(names[0], one, 0), *_under(names[1], two, len(first)))
    head = page_head([*first, *second], None, chosen.eyes)
    head |= {"beside": True, "title": " and ".join(dict.fromkeys((first[0].info.scenario, second[0].info.scenario)))}
    return PageContent(head | ({} if chosen.eyes is not None else {"run": " beside ".join(names)}), talks)


def _under(name: str, talks: Sequence[ShownGame], before: int) -> Iterator[ShownGame]:
    """The games under the name of their side; `before` runs precede their own."""
    for talk in talks:
        within = talk.head["group"]
        group = f"{name}: {within}" if within else name
        run = {} if "run" not in talk.head else {"run": talk.head["run"] + before}
        side = {"side": int(before > 0), "within": within}
        yield talk._replace(head=talk.head | {"group": group} | side | run)
