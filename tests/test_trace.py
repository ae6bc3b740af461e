"""agentcho-trace/1: valid traces, and invalid ones refused with place and reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.message import Role
from agentcho.records.trace import read_traces, workflow, write_traces


def talk() -> dict[str, Any]:
    """Two messages of two agents."""
    return {
        "format": "agentcho-trace/1", "workflow": "talk", "id": "t0", "meta": {"n": 1}, "agents": ["ada", "ben"],
        "messages": [
            {"id": "m0", "kind": "prefill", "role": "system", "author": "ada", "audience": ["ada"], "parents": [],
             "text": "SECRET"},
            {"id": "m1", "kind": "decode", "role": "assistant", "author": "ada", "audience": "everyone",
             "parents": ["m0"], "header": "", "text": "Hello.", "offsets": [None], "new_offset": 9},
        ],
    }  # fmt: skip


def test_a_workflow_goes_round(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    write_traces(path, [workflow(talk()), workflow(talk())])
    assert [each.to_json() for each in read_traces(path)] == [talk(), talk()]
    path.write_text(json.dumps(talk()))
    assert len(read_traces(path)) == 1, "a last line without its newline counts: nobody was killed writing it"


@pytest.mark.parametrize("role", get_args(Role))
def test_a_message_of_every_role_goes_round(tmp_path: Path, role: str) -> None:
    path, line = tmp_path / "traces.jsonl", talk()
    line["messages"][0] |= {"role": role}
    write_traces(path, [workflow(line)])
    assert [each.to_json() for each in read_traces(path)] == [line]


@pytest.mark.parametrize(
    ("number", "change", "fault"),
    [
        (0, {"role": "wizard"}, "role"),
        (1, {"parents": ["m2"]}, "parents must come earlier in the trace: m2"),
        (1, {"parents": ["m1"]}, "parents must come earlier in the trace: m1"),
        (1, {"id": "m0"}, "used before"),
        (1, {"author": "cy"}, "not listed in agents: cy"),
        (0, {"audience": ["ad"]}, "not listed in agents: ad"),
        (1, {"audience": ["ben"]}, "author who is in its audience"),
        (1, {"author": None}, "author who is in its audience"),
        (1, {"header": None}, "needs a header"),
        (1, {"role": "user"}, "role assistant"),
        (0, {"header": "To: "}, "must not have a header"),
        (1, {"offsets": [1, 2]}, "one entry per parent"),
        (1, {"tokens": [1]}, "digest of their tokenizer"),
        (1, {"tokens": [-1], "tokenizer": "abc"}, "tokens"),
        (1, {"kind": "think"}, "kind"),
        (1, {"colour": "red"}, "colour"),
        (1, {"new_offset": -1}, "new_offset"),
    ],
)
def test_a_message_that_does_not_fit_is_refused(number: int, change: dict[str, Any], fault: str) -> None:
    line = talk()
    line["messages"][number] |= change
    with pytest.raises(RecordBroken, match=fault) as refused:
        workflow(line)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("change", [{"format": "agentcho-trace/2"}, {"agents": ["ada", "ada"]}, {"extra": 1}])
def test_a_workflow_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RecordBroken, match="agentcho-trace/1"):
        workflow(talk() | change)


def test_a_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    for bad in ("{", "[1]", json.dumps(talk() | {"agents": []})):
        path.write_text(json.dumps(talk()) + "\n" + bad + "\n")
        with pytest.raises(RecordBroken, match=r"traces\.jsonl:2"):
            read_traces(path)
    with pytest.raises(RecordNotFound):
        read_traces(tmp_path / "none.jsonl")
