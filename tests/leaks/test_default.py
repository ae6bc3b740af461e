"""Leakage is enforced unless something else is asked for; the reproduction of the paper asks for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from agentcho import Choreographer, RunConfig, replay
from agentcho.audit.planned import audit_traces
from agentcho.cli import app
from agentcho.cli.options import spread_options
from agentcho.config import ReusePolicy
from agentcho.lab.compare.columns import columns
from agentcho.lab.tune.recipe import Recipe
from agentcho.testing import FakeEngine


def test_a_run_enforces_unless_it_is_told_otherwise() -> None:
    assert RunConfig().leakage == RunConfig().policy.leakage == ReusePolicy().leakage == "enforce"
    assert Choreographer(FakeEngine()).reuse.leakage == "enforce"
    assert inspect.signature(replay).parameters["reuse"].default == ReusePolicy()


@pytest.mark.parametrize(("function", "default"), [(spread_options(app.run), "enforce"), (audit_traces, "audit")])
def test_whoever_plays_enforces_and_a_trace_is_asked_what_plain_reuse_of_it_would_leak(
    function: Callable[..., Any], default: str
) -> None:
    assert inspect.signature(function).parameters["leakage"].default == default


def test_what_reproduces_the_paper_reuses_as_the_paper_does() -> None:
    assert columns("choreographed")[0].config(RunConfig()).leakage == "audit"
    assert columns("baseline")[0].config(RunConfig()).leakage == "audit"
    assert Recipe().leakage == "audit"
