"""`agentcho new scenario NAME`: write a scenario, its agent, its test and its tasks, which work at once.

They are meant to be changed, and nothing is overwritten.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from agentcho.errors import ScenarioError
from agentcho.games.runs.discovery import Found, Section, listing
from agentcho.records.files import write_errors

SKELETON = Path(__file__).parent / "skeleton"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def new_scenario(name: str, folder: Path) -> list[Path]:
    """Write the four files into `scenarios`, `agents`, `tests` and `tasks` of a folder, and return their paths.

    Raises `ScenarioError`, with nothing written, if the name is invalid or taken, or a file exists.
    """
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ScenarioError(
            f"{name!r} cannot name a scenario: use lower-case words joined by hyphens, such as night-watch"
        )
    words = _words(name)
    sections: tuple[tuple[Section, str], ...] = (("scenarios", name), ("agents", words["agent"]))
    for section, own in sections:
        if own in {found.name for found in listing(section) if isinstance(found, Found)}:
            raise ScenarioError(f"{own} is already one of the {section} (see `agentcho ls`); give another name")
    texts = {folder / path: text for path, text in _texts(words).items()}
    if there := [str(path) for path in texts if path.exists()]:
        raise ScenarioError(f"{', '.join(there)} already exists; move it away, or give another name")
    for path, text in texts.items():
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return list(texts)


def _words(name: str) -> dict[str, str]:
    cls = "".join(word.capitalize() for word in name.split("-"))
    module = name.replace("-", "_")
    return {"name": name, "module": module, "cls": cls, "agent": f"{name}-player", "agent_cls": f"{cls}Player"}


def _texts(words: Mapping[str, str]) -> dict[Path, str]:
    made = Environment(loader=FileSystemLoader(SKELETON), undefined=StrictUndefined, keep_trailing_newline=True)
    module = words["module"]
    files = {
        Path("scenarios", f"{module}.py"): "scenario.py.jinja",
        Path("agents", f"{module}_player.py"): "agent.py.jinja",
        Path("tests", f"test_{module}.py"): "test.py.jinja",
        Path("tasks", f"{module}.jsonl"): "tasks.jsonl",
    }
    return {path: made.get_template(template).render(words) for path, template in files.items()}
