"""Probes of servers in separate processes, on a real model: by the times and counts that they show."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentcho.cli import main
from agentcho.lab.bench.servers import folder, free_port, ours, peer, running
from agentcho.lab.probe import Plan, ProbeReport, judged, measure
from agentcho.lab.probe.endpoint import Bounds, Endpoint
from agentcho.serve.web.keys import add_key

pytestmark = pytest.mark.server
ONE_SALT = "from agentcho.serve.sharing.served import ServedModel; ServedModel._salt = lambda self, place: 'one'; "
"""Turns our server into a build in which all tenants have the same salt: each has its own tree of prompts, so that the
reported counts show no sharing, but the engine finds what another tenant has encoded."""
PLAN = Plan(("keys", "salts", "beyond"), trials=16, prompts=4)


def probed(command: Sequence[str], port: int, keys: Sequence[str], model: str = "understudy") -> ProbeReport:
    with running(command, port):
        server = Endpoint(f"http://127.0.0.1:{port}/v1", keys, Bounds(400, 300), model)
        try:
            return judged(server, measure(server, PLAN))
        finally:
            server.close()


def probed_ours(where: Path, leak: str) -> ProbeReport:
    """Probes our server with two tenants; `leak` is run before the server starts."""
    keys, port = [add_key(where / "keys", tenant=name) for name in ("ann", "bob")], free_port()
    python, flag, main, *words = ours("understudy", "float32", port)
    return probed([python, flag, leak + main, *words, "--keys", str(where / "keys")], port, keys)


def test_ours_shares_nothing_across_tenants_and_salts(tmp_path: Path) -> None:
    report = probed_ours(tmp_path, "")
    verdicts = {one.question: one.verdict for one in report.comparisons}
    assert verdicts == {"control": "seen", "keys": "not seen", "salts": "not seen", "beyond": "not seen"}, report
    assert report.words.verdict == "not seen"
    assert report.exit_code == 0


def test_a_build_of_ours_that_has_one_salt_for_all_is_found_by_its_times(tmp_path: Path) -> None:
    report = probed_ours(tmp_path, ONE_SALT)
    _, keys, salts, _ = report.comparisons
    assert (keys.verdict, salts.verdict, report.exit_code) == ("shared", "shared", 1), report
    assert (keys.reported, salts.reported) == (0, 0), "its counts say nothing"


@pytest.mark.skipif(find_spec("fastapi") is None, reason="transformers serve: pip install 'transformers[serving]'")
def test_the_server_of_transformers_has_no_salts_and_one_cache_for_all() -> None:
    port = free_port()
    command = peer("understudy", "float32", port, Path(sys.executable))
    report = probed(command, port, ["one", "two"], folder("understudy"))
    control, keys, salts, _ = report.comparisons
    assert salts.reason == "the server does not accept cache_salt"
    assert control.verdict == "inconclusive" or keys.verdict == "shared", report
    assert report.exit_code == (1 if keys.verdict == "shared" else 3)


def test_what_the_page_says_to_type_writes_its_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "probe.md"
    [*_, line] = re.findall(r"^agentcho (probe .*)$", page.read_text(), re.MULTILINE)
    keys, port = [add_key(tmp_path / "keys", tenant=name) for name in ("ann", "bob")], free_port()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRST_KEY", keys[0])
    Path("second-key.txt").write_text(keys[1])
    words = [*shlex.split(line.replace("8000", str(port))), "--seconds", "30"]
    monkeypatch.setattr(sys, "argv", ["agentcho", *words])
    with running([*ours("understudy", "float32", port), "--keys", str(tmp_path / "keys")], port):
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, 3), "nothing is shared, whether or not thirty seconds were enough to say so"
    for name in ("probe.json", "probe.sarif"):
        text = Path(name).read_text()
        assert json.loads(text)
        assert not any(key in text for key in keys)
