"""The page on remote models: its table agrees with the client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from agentcho.config import ModelConfig
from agentcho.integrations.endpoints.client import REPAIRS, TOKEN_BYTES
from agentcho.integrations.endpoints.faults import LONGEST_WAIT
from agentcho.integrations.endpoints.request import BENDING, FREE
from agentcho.integrations.endpoints.servers import KINDS
from agentcho.protocol.text_calls import Capability, Server

PATH = Path(__file__).parents[2] / "docs" / "any-model.md"
PAGE = PATH.read_text()
TEXT = " ".join(PAGE.split())


def table() -> dict[str, dict[str, str]]:
    """The table of servers' capabilities: a row per capability, a cell per server."""
    head, *rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in _lines()]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def _lines() -> list[str]:
    lines = PAGE[PAGE.index("| | `openai`") :].split("\n\n")[0].splitlines()
    return [line for line in lines if not re.match(r"\| ---", line)]


def test_the_table_has_every_server_and_every_capability() -> None:
    assert set(get_args(Capability)) <= table().keys()
    assert all(row.keys() == set(get_args(Server)) == KINDS.keys() for row in table().values())


@pytest.mark.parametrize("capability", get_args(Capability))
def test_the_table_says_what_each_server_can(capability: Capability) -> None:
    assert {name for name, said in table()[capability].items() if said == "yes"} == {
        name for name, kind in KINDS.items() if capability in kind.can
    }


def test_the_table_says_who_takes_which_sampling() -> None:
    assert {name for name, said in table()["top_k`, `min_p"].items() if said == "refused"} == {
        name for name, kind in KINDS.items() if kind.fixed
    }
    rows = {option: cells for row, cells in table().items() for option in re.findall(r"\w+", row)}
    for option in {*rows} & {*BENDING, *FREE}:
        for server, kind in KINDS.items():
            told = {None: "refused", option: "yes"}.get(kind.takes.get(option), kind.takes.get(option))
            assert rows[option][server] == told, (option, server)
    assert rows.keys() >= {*BENDING, *FREE}


def test_numbers_are_those_of_the_client() -> None:
    fields = ModelConfig.model_fields
    assert f"`retries` times ({fields['retries'].default})" in TEXT
    assert f"`concurrency` ({fields['concurrency'].default})" in TEXT
    assert f"`timeout` ({fields['timeout'].default})" in TEXT
    assert f"up to {LONGEST_WAIT:g} seconds" in TEXT
    assert f"{TOKEN_BYTES} bytes a token" in TEXT
    assert REPAIRS == 2
    assert "twice at most" in TEXT
