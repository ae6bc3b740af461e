"""Command options generated from model fields: names, defaults, help, and the command line that repeats them."""

from __future__ import annotations

import json
import re
import shlex
from itertools import chain
from typing import Annotated, Any

import pytest
import typer
from pydantic import Field
from typer.main import get_command

from agentcho.cli.app import app
from agentcho.cli.extension import PANELS
from agentcho.cli.options import GivenOptions, OptionsFrom, spread_options
from agentcho.cli.panels import OWN, panel
from agentcho.cli.shared_options import AUDITED
from agentcho.config import RunConfig, again
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.lab.commands.compare import COLUMNS

from ..golden.options import options
from .conftest import Command


class Wider(RunConfig):
    heat: float = Field(0.5, description="How warm.")
    hidden: int = 3


def ran(options: OptionsFrom, *words: str) -> GivenOptions:
    """The options that a command takes from the command line."""
    took: list[GivenOptions] = []

    def command(how: Any) -> None:
        took.append(how)

    command.__annotations__["how"] = Annotated[GivenOptions, options]
    cli = typer.Typer()
    cli.command()(spread_options(command))
    get_command(cli).main(list(words), standalone_mode=False)
    return took[0]


def test_a_new_field_is_an_option_with_its_default_and_only_where_it_is_described() -> None:
    assert ran(OptionsFrom(Wider))["heat"] == 0.5
    assert ran(OptionsFrom(Wider), "--heat", "2").typed == {"heat": 2.0}
    assert "hidden" not in ran(OptionsFrom(Wider))


def test_a_command_has_options_of_its_own_choice_and_defaults() -> None:
    took = ran(OptionsFrom(RunConfig, without=("mode",), defaults={"seed": 7}))
    assert (took["seed"], took.typed) == (7, {})
    assert "mode" not in took


def test_limits_stand_one_by_one() -> None:
    took = ran(OptionsFrom(RunConfig), "--limit", "agent_tokens=3", "--limit", "game_seconds=1.5")
    assert took.typed == {"limits": {"agent_tokens": "3", "game_seconds": "1.5"}}
    assert "limits" not in ran(OptionsFrom(RunConfig))


def test_every_described_field_is_an_option_of_run() -> None:
    run = get_command(app()).commands["run"]  # type: ignore[attr-defined]
    taken = {parameter.name: parameter for parameter in run.params}
    assert "models" in taken  # a file, which the command reads itself
    for name, field in RunConfig.model_fields.items():
        if name == "models":
            continue
        assert (name in taken) == (field.description is not None)
        assert name not in taken or taken[name].help == field.description


@pytest.mark.parametrize("options", [AUDITED, COLUMNS])
def test_the_line_that_does_it_again_says_what_is_not_the_default(options: OptionsFrom) -> None:
    others: dict[str, Any] = {
        "tasks": "arithmetic",
        "shadow": "never",
        "deterministic": True,
        "seed": 5,
        "plain_markers": "accept",
        "template_differs": "accept",
    }
    line = again(("agentcho", "audit", "a talk"), RunConfig(**others), options.fields(()), ("secret",))
    *words, flag, named = shlex.split(line)[3:]
    assert ran(options, *words).typed == others
    assert (flag, named) == ("--set", "secret=...")
    assert again(("agentcho",), RunConfig(), options.fields(())) == "agentcho"


def test_every_command_that_loads_a_model_says_what_to_do_about_one_whose_template_differs() -> None:
    spelled = dict[str, set[str]]()
    for command, option, _ in map(json.loads, options()):
        spelled.setdefault(command, set()).add(option.split(" ")[0])
    loading = {command for command, named in spelled.items() if "--model" in named} - {"agentcho probe"}
    assert len(loading) > 12
    assert {command for command in loading if "--template-differs" not in spelled[command]} == set()


def test_every_option_stands_in_one_panel_of_help_all_and_rare_ones_in_no_other_help(agentcho: Command) -> None:
    spelled = dict[str, set[str]]()
    for command, option, _ in map(json.loads, options()):
        spelled.setdefault(command, set()).update(re.findall(r"^(?:-n, )?(--[\w-]+)", option))
    many = {command: named for command, named in spelled.items() if "--help-all" in named}
    assert {"agentcho run", "agentcho compare", "agentcho sweep", "agentcho serve"} <= many.keys()
    for command, named in many.items():
        everything, common = (_panels(agentcho(*command.split()[1:], asked).out) for asked in ("--help-all", "--help"))
        assert sorted(chain.from_iterable(everything.values())) == sorted({*named, "--help"}), command
        assert common == {title: listed for title, listed in everything.items() if title in common}
        assert everything.keys() - common.keys() == {title for title in everything if title.startswith("More on ")}
        assert len(everything) < 20


def _panels(told: str) -> dict[str, list[str]]:
    """The options under each heading of a help text."""
    sections = re.findall(r"^(\w[\w ]+):\n((?:  .*\n)+)", told.replace("\nUsage:", "\nUsage :"), re.MULTILINE)
    found = {title: re.findall(r"^  (?:-n, )?(--[\w-]+)", body, re.MULTILINE) for title, body in sections}
    return {title: listed for title, listed in found.items() if title != "Arguments"}


def test_a_field_of_a_run_has_a_panel_and_help_says_how_many_options_it_leaves_out(agentcho: Command) -> None:
    fields = {**RunConfig.model_fields, **ClusterConfig.model_fields}
    assert [name for name, field in fields.items() if field.description and panel(name, field) == OWN] == []
    told = [agentcho("run", asked).out for asked in ("--help", "--help-all")]
    listed = [sum(map(len, _panels(each).values())) for each in told]
    assert re.search(rf"^{listed[1] - listed[0]} more options: .*agentcho run --help-all$", told[0], re.MULTILINE)
    assert "more options" not in told[1]
    assert "--help-all" not in agentcho("ls", "--help").out


def test_an_option_that_help_leaves_out_is_taken_and_completed(agentcho: Command) -> None:
    assert "--thoughts" not in agentcho("run", "--help").out
    assert agentcho("run", "prisoners-dilemma", "--model", "fake", "--thoughts", "audience").code == 0
    run = get_command(app()).commands["run"]  # type: ignore[attr-defined]
    context = run.make_context("agentcho run", [], resilient_parsing=True)
    assert {"--thoughts", "--help-all"} <= {each.value for each in run.shell_complete(context, "--")}
    assert "--thoughts" in agentcho("run", "--thought", "audience").err


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ("prove", "probe"),
        ("probe", "prove"),
        ("show", "view"),
        ("view", "show"),
        ("trace", "show --trace"),
        ("show", "trace"),
    ],
)
def test_help_of_commands_that_are_confused_names_the_other(agentcho: Command, command: str, other: str) -> None:
    told = agentcho(command, "--help").out.partition("\nArguments:")[0]
    assert f"`agentcho {other}`" in " ".join(told.split())


def test_help_groups_all_commands(agentcho: Command) -> None:
    told = agentcho("--help").out
    for title, names in PANELS.items():
        listed = told.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  (\S+)", listed, re.MULTILINE) == list(names)
    assert "agentcho run debate; agentcho audit last" in told


@pytest.mark.parametrize(("group", "first"), [((), "Play:"), (("bench",), "Commands:")])
def test_lists_of_commands_have_whole_sentences(agentcho: Command, group: tuple[str, ...], first: str) -> None:
    listed = agentcho(*group, "--help").out.partition(first)[2]
    listed = re.sub(r"\n\n(\w.*:\n)?", "\n", listed)
    rows = re.split(r"\n  (?=\S)", listed)[1:]
    assert len(rows) >= 9
    assert all(re.search(r"[.:)]$", " ".join(row.split())) and "..." not in row for row in rows), rows


def test_a_command_that_repeats_a_run_gives_each_value_of_an_option() -> None:
    config = RunConfig(model="fake", allow_vendor=("a", "b c"), deterministic=True)
    assert again(("agentcho", "audit", "talk.py"), config, ("allow_vendor", "deterministic", "seed")) == (
        "agentcho audit talk.py --allow-vendor a --allow-vendor 'b c' --deterministic"
    )
