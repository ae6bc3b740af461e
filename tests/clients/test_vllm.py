"""The vllm engine compared with agentcho's own engine on the same weights, in vLLM's environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentcho.records.record import find

from .environment import ROOT, python_of
from .served import running

pytestmark = pytest.mark.clients
ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
CLOSE = 1e-4


def ran(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs a Python program in vLLM's environment, which imports this checkout."""
    env = os.environ | ONE_THREAD | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [str(python_of("vllm")), *words], env=env, capture_output=True, text=True, check=False, **more
    )


def oracle(case: str) -> dict[str, Any]:
    """The result of a case of `vllm_oracles`."""
    found = ran("-m", "tests.clients.vllm_oracles", case, cwd=ROOT)
    assert found.returncode == 0, found.stderr[-3000:]
    told: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize(
    "family", ["llama", *(pytest.param(each, marks=pytest.mark.slow) for each in ("qwen2", "qwen3"))]
)
def test_reordered_overlapping_and_gapped_reads_have_the_log_probabilities_of_our_engine(family: str) -> None:
    assert oracle(family)["worst"] <= CLOSE


@pytest.mark.slow
def test_in_bfloat16_it_is_no_farther_from_the_truth_than_our_engine() -> None:
    found = oracle("bfloat16")
    assert 0 < found["vllm"] <= 2 * found["own"]


def test_preempted_decodes_and_prompts_in_parts_have_them_too() -> None:
    found = oracle("tight")
    assert found["worst"] <= CLOSE
    assert max(found["begun"].values()) > 1, "no decode was preempted"


@pytest.mark.slow
def test_prompts_that_are_never_divided_have_them_too() -> None:
    assert oracle("whole-prompts")["worst"] <= CLOSE


@pytest.mark.slow
def test_what_was_dropped_is_made_again() -> None:
    found = oracle("evicted")
    assert found["remade"] > 0
    assert found["worst"] <= CLOSE


def test_shadows_that_are_encoded_while_their_leaders_speak_have_them_too() -> None:
    found = oracle("shadows")
    assert found["worst"] <= CLOSE
    assert max(found["blocks"]) >= 32, "no shadow was encoded in blocks"


def test_under_enforce_a_swapped_secret_changes_nothing_that_readers_see() -> None:
    found = oracle("swapped")
    assert found["enforce"] <= 1e-5
    assert found["audit"] > 0.01, "the swap would be seen"


def test_who_is_cancelled_or_refused_hurts_nobody_else() -> None:
    found = oracle("ended")
    assert found["states"] == ["yes"] * 8
    assert found["following"][-2:] == [True, True], "a shadow that has paused is cancelled too"
    for place in ("admission", "worker"):
        failed, other = found["refused"][place]
        assert [each.split()[0] for each in failed] == ["0"], place
        assert other == "go on", place
    assert "no deterministic profile" in found["refused"]["deterministic"]
    assert found["left"] == 0
    assert found["fingerprint"]["chat_template_kwargs"] == '{"tone": "calm"}', "a record says how prompts were written"
    assert found["fingerprint"]["engine"].startswith("vllm 0.32")


@pytest.mark.slow
def test_a_real_model_says_the_same_words_greedy_drawn_chosen_and_as_json() -> None:
    found = oracle("words")
    assert found["equal"] == found["of"]
    assert found["worst"] <= 2 * CLOSE


@pytest.mark.slow
def test_twenty_games_have_the_same_words_up_to_tokens_that_are_as_likely() -> None:
    found = oracle("games")
    assert found["words"] > found["of"], "games differ from each other"
    assert found["equal"] + len(found["gaps"]) == found["of"]
    assert all(gap < CLOSE for gap in found["gaps"])


@pytest.mark.slow
@pytest.mark.parametrize(("leakage", "verdict"), [("enforce", "CLEAN (encodings)"), ("audit", "LEAKS")])
def test_a_game_on_it_is_audited_as_any_other(tmp_path: Any, leakage: str, verdict: str) -> None:
    words = ("--model", "smollm2", "--engine", "vllm", "--dtype", "float32", "--max-tokens", "16", "--seed", "1")
    played = ran("-m", "agentcho", "run", "prisoners-dilemma", *words, "--leakage", leakage, cwd=tmp_path)
    assert played.returncode == 0, played.stderr[-3000:]
    assert f"{verdict}: " in played.stdout
    audited = ran("-m", "agentcho", "audit", "last", cwd=tmp_path)
    assert audited.stdout.startswith(f"{verdict}: ")


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        ("tensor", "2 x 1"),
        pytest.param("tensor-copied", "2 x 1", marks=pytest.mark.slow),
        pytest.param("pipeline", "1 x 2", marks=pytest.mark.slow),
        pytest.param("tensor-and-pipeline", "2 x 2", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_is_divided_among_ranks_has_the_log_probabilities_of_our_engine(case: str, ranks: str) -> None:
    found = oracle(case)
    assert max(found[name] for name in ("shapes", "crowd", "shadows")) <= 2 * CLOSE
    assert max(found["begun"].values()) > 1, "no decode was preempted"
    assert max(found["blocks"]) >= 32, "no shadow was encoded in blocks"
    assert found["enforce"] <= 1e-5
    assert found["audit"] > 0.01, "the swap would be seen"
    for place in ("admission", "worker"):
        failed, other = found["refused"][place]
        assert ([each.split()[0] for each in failed], other) == (["0"], "go on"), place
    assert (found["ranks"], found["left"]) == (ranks, 0)


@pytest.mark.slow
def test_where_a_rank_dies_the_step_ends_with_the_reason_and_nothing_is_left() -> None:
    found = oracle("killed")
    assert [told.split(":")[0] for told in found["told"]] == ["EngineFailed"] * 2
    assert all("a worker of vLLM has died (rank" in told for told in found["told"])
    assert found["seconds"] < 30
    assert found["kept"].startswith("all that is said here")
    assert found["left"] == []
    assert [name for name in found["segments"] if Path(name).exists()] == []


@pytest.mark.slow
def test_a_real_model_says_the_same_words_divided_among_three_ranks() -> None:
    found = oracle("words-divided")
    assert found["equal"] == found["of"]


LOST = Path(__file__).parent / "scripts" / "lost.py"


@pytest.mark.slow
def test_a_game_that_lost_a_rank_keeps_what_was_said_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "bad").touch()
    words = ("--model", "understudy", "--engine", "vllm", "--dtype", "float32", "--tensor-parallel", "2", "--seed", "1")
    played = ran("-m", "agentcho", "run", str(LOST), *words, cwd=tmp_path, timeout=900)
    assert played.returncode == 1, played.stderr[-3000:]
    assert "a worker of vLLM has died" in played.stdout + played.stderr
    before = _spoken(tmp_path)
    assert len(before) == 2, "one round was over"
    (tmp_path / "bad").unlink()
    on = ran("-m", "agentcho", "run", "--resume", "last", cwd=tmp_path, timeout=900)
    assert on.returncode == 0, on.stderr[-3000:]
    after = _spoken(tmp_path)
    assert (after[:2], len(after)) == (before, 4)
    assert ran("-m", "agentcho", "audit", "last", cwd=tmp_path).stdout.startswith("CLEAN (encodings): ")


def _spoken(folder: Path) -> list[str]:
    """The messages decoded in the only game of the last run."""
    game = find("last", folder / "runs").games()[0]
    return [entry.message.text for entry in game if entry.message.kind == "decode"]


@pytest.mark.parametrize(("requests", "at_once"), [(120, 40), pytest.param(2000, 200, marks=pytest.mark.slow)])
def test_a_crowd_at_a_server_on_it_leaves_nothing_behind(requests: int, at_once: int) -> None:
    pressed = f"from tests.serve.test_load import press; press('understudy', {requests}, {at_once}, '--engine', 'vllm')"
    found = ran("-c", pressed, cwd=ROOT)
    assert found.returncode == 0, found.stderr[-3000:]


@pytest.mark.slow
def test_the_doctor_says_what_vllm_computes_it_with(tmp_path: Any) -> None:
    found = ran("-m", "agentcho", "doctor", "smollm2", "--engine", "vllm", cwd=tmp_path)
    assert found.returncode == 0, found.stderr[-3000:]
    assert found.stdout.startswith("smollm2: can be computed by vLLM")
    assert "vllm 0.32" in found.stdout
    refused = ran("-m", "agentcho", "doctor", "smollm2", "--engine", "vllm", "--weights", "int8", cwd=tmp_path)
    assert refused.returncode == 2
    assert "weights cannot be used with engine vllm" in refused.stderr


THREE = Path(__file__).parent / "scripts" / "three.py"


@pytest.mark.slow
def test_a_killed_game_of_three_kinds_of_models_goes_on_and_is_audited(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        (tmp_path / "models.toml").write_text(
            '[other]\nmodel = "smollm2"\nengine = "vllm"\ndtype = "float32"\n'
            f'[far]\nmodel = "openai:understudy"\nbase_url = "{server.root}/v1"\nserver = "agentcho"\n'
            'key_file = "key"\n'
        )
        (tmp_path / "key").write_text(server.key)
        (tmp_path / "key").chmod(0o600)
        (tmp_path / "bad").touch()
        words = ("-m", "agentcho", "run", str(THREE), "--models", "models.toml", "--seed", "1")
        assert ran(*words, cwd=tmp_path).returncode == -signal.SIGKILL
        said = find("last", tmp_path / "runs").games()[0]
        (tmp_path / "bad").unlink()
        on = ran("-m", "agentcho", "run", "--resume", "last", cwd=tmp_path)
        assert on.returncode == 0, on.stderr[-3000:]
        audited = ran("-m", "agentcho", "audit", "last", cwd=tmp_path)
        assert audited.stdout.startswith("TEXTS CLEAN: views held; the caches of that server were not seen")
    after = find("last", tmp_path / "runs").games()[0]
    spoken = [entry.message.text for entry in after if entry.message.kind == "decode"]
    before = [entry.message.text for entry in said if entry.message.kind == "decode"]
    assert len(before) == 3, "one round was over"
    assert (spoken[:3], len(spoken)) == (before, 6)
