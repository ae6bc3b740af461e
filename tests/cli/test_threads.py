"""The number of compute threads is in the record, in the log and in the table of `doctor`; and the table's length."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentcho.records.record import find
from tests.engines import Engines

from .conftest import Command

RUN = ("run", "direct", "--device", "cpu", "--max-tokens", "2")


@pytest.mark.slow
def test_the_number_is_on_record_in_the_log_and_in_the_table_of_doctor(
    agentcho: Command, engines: Engines, here: Path
) -> None:
    folder = str(engines.folder())
    ran = agentcho("--log-level", "info", *RUN, "--model", folder, "--threads", "2")
    assert (ran.code, ", 2 threads (as asked for)" in ran.err) == (0, True), ran.err
    info = find("last", here / "runs").info
    assert (info.config.threads, info.engine["threads"]) == (2, "2")
    assert agentcho("run", "--resume", "last").code == 0
    told = agentcho("doctor", folder, "--device", "cpu", "--threads", "2").out
    assert re.search(r"threads +2 +as asked for", told)


def test_doctor_has_one_line_for_all_layers_unless_it_is_asked_for_each(agentcho: Command, engines: Engines) -> None:
    words = ("doctor", str(engines.folder()), "--device", "cpu")
    short, long = (agentcho(*words, *more).out.splitlines() for more in ((), ("--verbose",)))
    assert len([line for line in short if line.split()[:1] == ["layers"]]) == 1
    assert not any(line.split()[:1] == ["layer"] for line in short)
    each = [line for line in long if line.split()[:1] == ["layer"]]
    assert len(each) == len(engines().proofs)
    assert not any(line.split()[:1] == ["layers"] for line in long)
