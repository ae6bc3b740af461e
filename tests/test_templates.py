"""Real chat templates: where they are found, and what is reported of them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tools.pages.templates import page, part
from tools.templates.__main__ import lines, summed
from tools.templates.families import family
from tools.templates.measured import measured
from tools.templates.result import TemplatesResult
from tools.templates.sources import Template, found

DOCS = Path(__file__).parents[1] / "docs"
CHATML = (Path(__file__).parent / "engine" / "chat" / "chatml.jinja").read_text()
HERMES = (Path(__file__).parent / "engine" / "chat" / "hermes.jinja").read_text()


def test_templates_are_found_in_files_folders_and_wheels_once_each(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "plain.jinja").write_text(CHATML)
    (tmp_path / "one" / "no_template.jinja").write_text("{{ x }}")
    (tmp_path / "one" / "models.json").write_text(json.dumps([{"model_name": "named", "chat_template": HERMES}]))
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as wheel:
        wheel.writestr("some/chat_templates.py", f"again_template = {CHATML!r}\nother_template = {CHATML + ' '!r}\n")
        wheel.writestr("some/more.jinja", CHATML.replace("assistant", "model"))
    places = [tmp_path / "one", tmp_path / "some.whl"]
    assert [(each.name, each.source) for each in found(places)][1:] == [("named", HERMES), ("plain", CHATML)]
    assert found(places)[0].name == "more"
    with pytest.raises(SystemExit, match="there is no"):
        found([tmp_path / "nowhere"])


def test_a_template_that_is_right_is_said_so_and_one_that_is_not_too() -> None:
    right = measured(Template("granite", "a", CHATML), family("granite"))
    calling = measured(Template("granite", "b", HERMES), family("granite"))
    broken = measured(Template("granite", "c", "{{ raise_exception(messages) }}"), family("granite"))
    assert (right.plain, right.tools, right.forged) == (right.of, "none", False)
    assert (calling.tools, calling.tools_written, calling.tools_read, calling.tools_listed) == ("derived", *[True] * 3)
    assert "template fails" in broken.refused
    assert "refused" in lines(broken)[0]
    assert any("3 templates, 2 load" in line for line in summed([right, calling, broken]))
    result = TemplatesResult(
        command="python -m tools.templates",
        environment={},
        places=("x",),
        conversations=9,
        rows=(right, calling, broken),
    )
    told = part(TemplatesResult.model_validate_json(result.model_dump_json(exclude_defaults=True)))
    assert "| single bytes, with its control tokens | 2 | 2 of 2 | 2 of 2 | 2 of 2 | 1/1/1 of 1 |" in told
    assert "Refused: granite (its template fails" in told


@pytest.mark.skipif(not (DOCS / "results" / "templates.json").exists(), reason="there is no result file")
def test_the_page_says_what_the_result_file_has() -> None:
    text = (DOCS / "how-to" / "own-model.md").read_text()
    assert page(DOCS / "results", text) == text
    rows = TemplatesResult.model_validate_json((DOCS / "results" / "templates.json").read_bytes()).rows
    assert [row.name for row in rows if row.plain != row.of or row.forged] == []
