"""Probes of servers in processes of their own, on a real model: by times and counts as they come."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentcho.lab.bench.servers import folder, free_port, ours, peer, running
from agentcho.lab.probe import Plan, ProbeReport, judged, measure
from agentcho.lab.probe.endpoint import Bounds, Endpoint
from agentcho.serve.web.keys import add_key

pytestmark = pytest.mark.server
ONE_SALT = "from agentcho.serve.sharing.served import ServedModel; ServedModel._salt = lambda self, place: 'one'; "
"""Makes a build of ours in which all tenants have the same salt: each has a tree of its own, which counts as if nothing
were shared, but the engine finds what another one has encoded."""
PLAN = Plan(("keys", "salts", "beyond"), trials=16, prompts=4)


def probed(command: Sequence[str], port: int, keys: Sequence[str], model: str = "understudy") -> ProbeReport:
    with running(command, port):
        server = Endpoint(f"http://127.0.0.1:{port}/v1", keys, Bounds(400, 300), model)
        try:
            return judged(server, measure(server, PLAN))
        finally:
            server.close()


def probed_ours(where: Path, leak: str) -> ProbeReport:
    """Ours, with two tenants and with this before it begins."""
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
    assert salts.reason == "the server takes no cache_salt"
    assert control.verdict == "inconclusive" or keys.verdict == "shared", report
    assert report.exit_code == (1 if keys.verdict == "shared" else 3)
