"""`--threads`: on how many threads models are computed is on record, in the log and in the table of `doctor`."""

from __future__ import annotations

import re
from pathlib import Path

from agentcho.records.record import find
from tests.engines import Engines

from .conftest import Command

RUN = ("run", "direct", "--device", "cpu", "--max-tokens", "2")


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
