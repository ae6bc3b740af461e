"""Makes command-line options from the fields of models, and checked values from what was typed.

An option is then declared once, for the command line and for Python. Independent of what the options mean.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.models import OptionInfo

from agentcho import config
from agentcho.cli import completion
from agentcho.cli.panels import FEW, HELP, RARE, panel, show_all
from agentcho.config import RunConfig, served
from agentcho.errors import ConfigError

Checked = TypeVar("Checked", bound=BaseModel)
PAIR = "KEY=VALUE"


class GivenOptions(dict[str, Any]):
    """The values of a command's options that come from one model, by field. `typed` are those that were typed."""

    def __init__(self, options: Mapping[str, Any], typed: Iterable[str]) -> None:
        super().__init__(options)
        self.typed = {name: options[name] for name in typed}


class OptionsFrom(NamedTuple):
    """Marks a command's parameter, a `GivenOptions`, that is replaced by options for the fields of a model.

    Each field with a description is an option, with the field's name, type and default, and the description as help.
    `only` and `without` select fields by name. A parameter of the command with a field's name replaces that option.
    `defaults` and `helps` are this command's own.
    """

    model: type[BaseModel]
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = {}
    helps: Mapping[str, str] = {}

    def fields(self, own: Iterable[str]) -> list[str]:
        """Return the fields that are options of a command with these parameters of its own."""
        described = [name for name, field in self.model.model_fields.items() if field.description]
        chosen = [name for name in described if not self.only or name in self.only]
        return [name for name in chosen if name not in {*self.without, *own}]

    def option(self, name: str) -> inspect.Parameter:
        """Return the option of a field as typer reads it. Limits may be given several times, and a bool is a flag."""
        field = self.model.model_fields[name]
        said = typer.Option(*_flags(name, field), help=self.helps.get(name, field.description), metavar=_metavar(field))
        said.rich_help_panel = panel(name, field)
        said.autocompletion = completion.models if name == "model" else None
        several = _is_limits(field) or _is_list(field)
        kind: Any = list[str] | None if several else field.annotation
        default = None if several else self.defaults.get(name, field.default)
        return _keyword(name, Annotated[kind, said], default)


def _is_limits(field: FieldInfo) -> bool:
    """Return whether a field is itself a model, whose fields are given by name."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _is_list(field: FieldInfo) -> bool:
    """Return whether a field is a list of words, each given separately."""
    return field.annotation == tuple[str, ...]


def _flags(name: str, field: FieldInfo) -> tuple[str, ...]:
    if _is_limits(field):
        return ("--limit",)
    return (f"--{name.replace('_', '-')}",) if field.annotation is bool else ()


def _metavar(field: FieldInfo) -> str | None:
    extra = field.json_schema_extra
    found = extra.get("metavar") if isinstance(extra, dict) else None
    return str(found) if found is not None else PAIR if _is_limits(field) else None


def _keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command for typer, with options in place of each parameter that `OptionsFrom` marks."""
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    marked = {name: mark for name in own if (mark := _mark(hints[name])) is not None}
    parameters = [_keyword("ctx", typer.Context)]
    for name, parameter in own.items():
        if name in marked:
            parameters += [marked[name].option(field) for field in marked[name].fields(own)]
        else:
            parameters.append(_keyword(name, hints[name], parameter.default))
    parameters = _with_panels(parameters)

    def called(ctx: typer.Context, **words: Any) -> None:
        given = {name: _given(ctx, mark, mark.fields(own), words) for name, mark in marked.items()}
        with usage_errors():
            command(**{name: words[name] for name in own if name in words}, **given)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    vars(called)["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _with_panels(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters of a command with a panel for each option if there are many.

    `--help-all` is one of them if some options are rare.
    """
    named = {each.name: info for each in parameters if (info := _option_info(each.annotation)) is not None}
    if len(named) <= FEW:
        return parameters
    panels = {name: info.rich_help_panel or panel(name) for name, info in named.items()}
    found = [_in_panel(each, panels[each.name]) if each.name in panels else each for each in parameters]
    if not RARE.keys().isdisjoint(panels.values()):
        said = typer.Option(
            "--help-all", callback=show_all, is_eager=True, help="Show all options and exit.", rich_help_panel=HELP
        )
        found.append(_keyword("help_all", Annotated[bool, said], default=False))
    return found


def _option_info(hint: Any) -> OptionInfo | None:
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, OptionInfo)), None)


def _in_panel(parameter: inspect.Parameter, title: str) -> inspect.Parameter:
    """Return a copy of an option with its panel. The original, which commands may share, stays unchanged."""
    hint = parameter.annotation
    said = copy(_option_info(hint))
    assert said is not None
    said.rich_help_panel = title
    return parameter.replace(annotation=Annotated[hint.__origin__, said])


def _mark(hint: Any) -> OptionsFrom | None:
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, OptionsFrom)), None)


def _given(ctx: typer.Context, mark: OptionsFrom, names: Iterable[str], words: Mapping[str, Any]) -> GivenOptions:
    options = {name: words[name] for name in names}
    if "base_url" not in options and served(str(options.get("model"))):
        what = (
            f"{options['model']} is a model behind an API, which only run, audit and sweep take; give a model "
            "that is loaded here"
        )
        raise typer.BadParameter(what, param_hint="--model")
    for name in (each for each in options if _is_list(mark.model.model_fields[each])):
        options[name] = tuple(options[name] or ())
    if options.get("limits", ()) is None:
        del options["limits"]
    elif "limits" in options:
        options["limits"] = fields("--limit", options["limits"])
    return GivenOptions(options, [name for name in options if _was_typed(ctx, name)])


def _was_typed(ctx: typer.Context, option: str) -> bool:
    source = ctx.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def fields(option: str, given: Iterable[str]) -> dict[str, str]:
    """Return `KEY=VALUE` words as a mapping. Raises a usage error for any other word, or a repeated key."""
    found: dict[str, str] = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r} is not of the form KEY=VALUE", param_hint=option)
        if key in found:
            raise typer.BadParameter(f"{key} is given twice; give it once", param_hint=option)
        found[key] = value
    return found


@contextmanager
def usage_errors() -> Iterator[None]:
    """A context in which a `ConfigError` that names an option is raised as a usage error of that option."""
    try:
        yield
    except ConfigError as error:
        if error.option is None:
            raise
        option, _, key = error.option.partition(" ")  # such as "limits game_tokens"; keys keep their underscores
        where = f"{option.replace('_', '-').replace('limits', 'limit')} {key}".rstrip()
        raise typer.BadParameter(error.reason, param_hint=f"--{where}") from None


def run_config(**options: Any) -> RunConfig:
    """Return the run's options, checked."""
    return checked(RunConfig, **options)


def checked(kind: type[Checked], /, **options: Any) -> Checked:
    """Return options as their model.

    Raises a usage error that names the first invalid option, or `ConfigError` for options that contradict each other.
    """
    with usage_errors():
        return config.checked(kind, **options)
