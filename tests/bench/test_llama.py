"""`agentcho bench peers` end to end: on a stand-in for llama.cpp's server, and on the real one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentcho.cli import main
from agentcho.lab.bench.peers import llama, measured
from agentcho.lab.bench.peers.gguf import write_gguf
from agentcho.lab.bench.peers.rows import Rows
from agentcho.lab.bench.peers.same import EXACT, peek, prompt_of
from agentcho.lab.bench.peers.targets import GUESSING, LLAMA, OURS, ROW
from agentcho.lab.bench.result import read_result
from agentcho.records.trace import Workflow, write_traces
from agentcho.runner.understudy import weights_path

from .llama import completing

REAL = "AGENTCHO_TEST_LLAMA"
"""Names the file of a real llama-server, which is then required; by default that of `make llama`, if it is there."""
SMALL = ("--scale", "0.02", "--agents", "2", "--repeats", "1")
OURSELVES = ("choreographed:audit", "choreographed:enforce", "baseline")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses small sizes, which are measured quickly."""
    sizes = 96, 4
    monkeypatch.setattr(Rows, "SIZES", sizes)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", "peers", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.fixture
def network() -> Any:
    loading: Any = AutoModelForCausalLM
    return loading.from_pretrained(weights_path(), dtype=torch.float32).eval()


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """A program that prints options and a version, and is never started as a server."""
    file = tmp_path / "llama-server"
    file.write_text("#!/bin/sh\ncase $1 in --help) echo '--spec-default  drafts';; *) echo 'version: 1 (abc)';; esac\n")
    file.chmod(0o755)
    return file


@pytest.mark.slow
def test_both_are_timed_in_turns_on_the_same_words(
    network: Any, peer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gguf", reason="agentcho[peers] is not installed")
    with completing(network) as server:

        @contextmanager
        def serving(peer: llama.Peer, file: Path, setting: llama.Setting) -> Iterator[llama.Served]:
            assert file.stat().st_size > 3_000_000
            yield llama.Served(server.server_address[1], "a stand-in")

        monkeypatch.setattr(measured, "serving", serving)
        file = tmp_path / "peers.json"
        words = ("--dtype", "float32", "--llama-server", str(peer), *SMALL, "--json", str(file))
        assert run(monkeypatch, *words) == 0
        asked = server.asked
    found, said = read_result(file), capsys.readouterr().out
    assert found.arms == (OURS, LLAMA, GUESSING, *OURSELVES)
    assert found.subjects == (ROW, "2 agents", "2 agents, unnamed")
    assert all(found.has(ROW, arm) for arm in (OURS, LLAMA, GUESSING))
    for subject in found.subjects[1:]:
        assert all(found.has(subject, arm) for arm in (*OURSELVES, LLAMA, GUESSING))
        assert len({found.values(subject, arm, "said") for arm in (*OURSELVES, LLAMA, GUESSING)}) == 1
    assert {body["id_slot"] for body in asked} == {-1, 0, 1}
    assert found.machine["peer type"] == "F32"
    assert re.search(r"same network +100% of 8 likeliest tokens, log-probabilities within \S+ nats", said)
    whole = [tuple(body["prompt"]) for body in asked if body["id_slot"] == -1 and "n_probs" not in body]
    assert len(whole) - len(set(whole)) == len(whole) // 2, "each row once for each of both servers, and no row again"


@pytest.mark.slow
def test_words_of_a_trace_are_timed_in_slots_that_hold_nothing_of_the_play_before(
    network: Any, peer: Path, tree: Workflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf", reason="agentcho[peers] is not installed")
    trace, file = tmp_path / "trace.jsonl", tmp_path / "peers.json"
    write_traces(trace, [tree])
    with completing(network) as server:

        @contextmanager
        def serving(peer: llama.Peer, file: Path, setting: llama.Setting) -> Iterator[llama.Served]:
            yield llama.Served(server.server_address[1], "a stand-in")

        monkeypatch.setattr(measured, "serving", serving)
        words = ("--dtype", "float32", "--llama-server", str(peer), "--traces", str(trace), "--json", str(file))
        assert run(monkeypatch, *words, "--repeats", "2", "--agents", "4") == 0
        asked = [(body["id_slot"], len(body["prompt"]) == 1) for body in server.asked if body["id_slot"] >= 0]
    found = read_result(file)
    assert found.subjects == (ROW, "trace tree tree-0")
    assert found.scale == 1
    for slot in range(4):
        own = [emptied for of, emptied in asked if of == slot]
        plays = 2 * 3  # a warm-up and two repeats, without and with drafts
        assert own == [True, False] * plays, "emptied before each play, in which each of four agents speaks once"


def test_traces_and_workflows_are_not_both_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--traces", "x.jsonl", "--workflow", "debate") == 2
    assert "give --workflow or --traces, not both" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_another_network_is_not_timed(
    network: Any, peer: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gguf", reason="agentcho[peers] is not installed")
    network.model.layers[0].self_attn.q_proj.weight.data.mul_(0.5)
    with completing(network) as server:

        @contextmanager
        def serving(*_: Any) -> Iterator[llama.Served]:
            yield llama.Served(server.server_address[1], "a stand-in")

        monkeypatch.setattr(measured, "serving", serving)
        assert run(monkeypatch, "--dtype", "float32", "--llama-server", str(peer), *SMALL) != 0
        asked = server.asked
    assert "the peer does not reproduce understudy" in " ".join(capsys.readouterr().err.split())
    assert len(asked) == 1


@pytest.fixture(scope="module")
def real() -> Path:
    """The path of the real server."""
    pytest.importorskip("gguf", reason="agentcho[peers] is not installed")
    given = os.environ.get(REAL)
    file = Path(given) if given else Path(__file__).parents[2] / llama.BUILT / llama.SERVER
    if not file.is_file():
        told = f"{file} is not there: run `make llama`"
        pytest.fail(told) if given else pytest.skip(told)
    return file.resolve()


@pytest.mark.clients
@pytest.mark.parametrize(
    ("weights", "kind"), [((), "F32"), (("--weights", "int8"), "Q8_0"), (("--weights", "int4"), "Q4_0")]
)
def test_the_real_server_computes_the_same_network_and_is_timed(
    real: Path, weights: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "peers.json"
    words = ("--dtype", "float32", *weights, "--llama-server", str(real), *SMALL, "--json", str(file))
    assert run(monkeypatch, *words) == 0
    found = read_result(file)
    assert found.machine["peer type"] == kind
    assert re.match(
        r"100% of 8 likeliest tokens, log-probabilities within \S+e-0[4-9] nats", found.machine["same network"]
    )
    for subject in found.subjects:
        assert found.has(subject, LLAMA)
        assert all(rate > 0 for rate in found.values(subject, LLAMA, "rate"))
    assert found.values("2 agents", LLAMA, "said") == found.values("2 agents", "baseline", "said")
    assert found.values("2 agents", LLAMA, "cached")[0] > 0


@pytest.mark.clients
def test_the_real_server_reuses_nothing_of_an_earlier_play_of_a_trace(
    real: Path, tree: Workflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, file = tmp_path / "trace.jsonl", tmp_path / "peers.json"
    write_traces(trace, [tree])
    words = ("--dtype", "float32", "--llama-server", str(real), "--traces", str(trace), "--json", str(file))
    assert run(monkeypatch, *words, "--repeats", "3", "--agents", "4") == 0
    found = read_result(file)
    (subject,) = (each for each in found.subjects if each != ROW)
    cached = found.values(subject, LLAMA, "cached")
    assert len(set(cached)) == 1, "as much in the first play as in those after it"


@pytest.mark.clients
@pytest.mark.parametrize("shape", ["llama3", "qwen3"])
def test_the_real_server_reads_other_networks(real: Path, shape: str, tmp_path: Path) -> None:
    from .test_gguf import SCALED, network

    more = {"rope_parameters": SCALED} if shape == "llama3" else {"tie_word_embeddings": True}
    made, file = network("llama" if shape == "llama3" else "qwen3", **more), tmp_path / "tiny.gguf"
    for weight in made.parameters():
        weight.data.mul_(0.1)
    write_gguf(made, "tiny", file)
    setting = llama.Setting(1, 1, 256, wishes=EXACT)
    with llama.serving(llama.Peer.found(real), file, setting) as served:
        peeked = peek(served.port, prompt_of(400, 1))
    with torch.no_grad():
        rows = made(input_ids=torch.tensor([[*peeked.prompt, *peeked.said]])).logits[0, len(peeked.prompt) - 1 : -1]
    for row, step in zip(rows.double().log_softmax(-1), peeked.likeliest, strict=True):
        assert len(step) == 10
        assert all(abs(float(row[id]) - p) < 1e-3 for id, p in step.items())
        assert int(row.argmax()) == max(step, key=lambda id: step[id])
