"""How Sphinx builds the site: `make docs` writes docs/_build/html. Nothing is fetched, to build it or to read it."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import version as installed
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from docutils import nodes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import agentcho
import agentcho.testing

project = "agentcho"
author = "the authors of agentcho"
release = version = installed("agentcho")
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
nitpicky = True
# What other projects document: linking to it would need their inventories from the network.
nitpick_ignore_regex = [
    ("py:.*", r"(collections|contextlib|pathlib|types|typing|os|enum|re)\b.*"),
    ("py:.*", r"(Path|Callable|Iterable|Iterator|Sequence|Mapping|AsyncIterator|Awaitable|Coroutine)"),
    ("py:.*", r"(torch|pydantic|annotated_types|nn)\b.*"),
    ("py:.*", r"'.*'"),  # words of a `Literal`
    (
        "py:.*",
        r"(Kind|Role|Part|Place|GameOver|Encoded|TranscriptEntry|Event|Names|ViewLike|Toolset|SamplingOptions|ReuseFor)",
    ),  # aliases and parts that are no public names
    ("py:.*", r"(Changed|Comparison|EnginePort|JudgePort|SweepResult|ProgressCallback|Computing)"),
]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # a test executes notebooks, and finds their outputs to be those of now
nb_ipywidgets_js = {}

html_theme = "furo"
html_title = "agentcho"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"
smartquotes_action = "D"  # quotes of values stay as they are typed
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 88
default_role = "code"
add_module_names = False
toc_object_entries_show_parents = "hide"

FITS = 1 << 31
"""Bounds from here on only keep numbers in 32 or 64 bits."""
PUBLIC = {name: f"agentcho.{name}" for name in agentcho.__all__} | {
    name: f"agentcho.testing.{name}" for name in agentcho.testing.__all__
}


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", linked)
    app.connect("missing-reference", public)


def short_signature(_: Sphinx, what: str, __: str, value: Any, ___: Any, signature: str | None, returns: Any) -> Any:
    """The fields of a pydantic model are listed under it: its signature would say the same, unreadably. Nobody
    makes an engine or a game by its constructor. A default that is an object without a form of its own is `...`."""
    if what == "class" and (_is_model(value) or value in (agentcho.Engine, agentcho.Game)):
        return "(**fields)" if _is_model(value) else "", None
    return signature and (re.sub(r"<[^<>]*>", "...", signature), returns)


def linked(_: Sphinx, what: str, __: str, value: Any, ___: Any, lines: list[str]) -> None:
    """Public names in backticks become links, and a pydantic model gets a list of its fields."""
    lines[:] = [re.sub(r"(?<!`)`([A-Za-z]+)`(?!`)", _link, line) for line in lines]
    if what == "class" and _is_model(value):
        _tell_fields(lines, value)


def _tell_fields(lines: list[str], model: type[BaseModel]) -> None:
    """One `:param:` for each field of a pydantic model: its type and default, then what the docstring says of it."""
    told, others, place = dict[str, list[str]](), list[str](), None
    name = None
    for line in lines:
        found = re.match(r":param (\w+): (.*)", line)
        name = found[1] if found else name if line.startswith(" ") else None
        if found:
            place = len(others) if place is None else place
            told[found[1]] = [found[2]]
        elif name is not None:
            told[name].append(line)
        else:
            others.append(line)
    if place is None:
        others, place = [*others, "", ""], len(others) + 1
    fields = (_field(name, field, told.get(name, [])) for name, field in model.model_fields.items())
    lines[:] = [*others[:place], *(line for field in fields for line in field), *others[place:]]


def public(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element) -> nodes.Element | None:
    """A reference to where a public name is defined, as annotations have it, leads to where it is documented. Names
    that are not public stay text."""
    name = node["reftarget"].rpartition(".")[2]
    domain = env.domains.python_domain
    if node.get("refdomain") != "py":
        return None
    if name in PUBLIC:
        found = domain.find_obj(env, "", "", PUBLIC[name], None)
        if found:
            _, entry = found[0]
            return _to(app, node, entry.docname, entry.node_id, text)
    return text if node["reftarget"].split(".")[0] == "agentcho" else None


def _to(app: Sphinx, node: pending_xref, page: str, place: str, text: nodes.Element) -> nodes.Element:
    assert app.builder is not None
    link = nodes.reference("", "", text, internal=True)
    link["refuri"] = app.builder.get_relative_uri(node.get("refdoc", page), page) + f"#{place}"
    return link


def _link(found: re.Match[str]) -> str:
    target = PUBLIC.get(found[1]) if found[1][0].isupper() else None
    return f":py:obj:`~{target}`" if target else found[0]


def _is_model(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseModel)


def _field(name: str, field: FieldInfo, told: list[str]) -> list[str]:
    """`name: type = default (bounds) — description`, as reStructuredText. `told` are lines of the docstring."""
    default = "" if field.is_required() else f" = {_plain(field.get_default(call_default_factory=True))}"
    bounds = ", ".join(text for limit in field.metadata if (text := _bound(limit)))
    described = re.sub(r"_(?!\w)", r"\\_", field.description or "")  # `name_` is a link
    described = re.sub(r"(?<!\S)--[a-z-]+", r"``\g<0>``", described)  # two hyphens would be a dash
    first, *more = told or [described]
    text = f":param {name}: ``{_type(field.annotation)}{default}``" + (f" ({bounds})" if bounds else "")
    return [text + (f" — {first}" if first else ""), *more]


def _plain(value: Any) -> str:
    return f"{type(value).__name__}()" if isinstance(value, BaseModel) else repr(value)


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " | ".join(map(_type, parts))
    if origin is Annotated:
        return _type(parts[0])
    if str(origin) == "typing.Literal":
        return " | ".join(map(repr, parts))
    if origin:
        return f"{origin.__name__}[{', '.join('...' if part is ... else _type(part) for part in parts)}]"
    return "None" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def _bound(limit: Any) -> str:
    signs = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "min_length": "of at least length"}
    found = {words: getattr(limit, name, None) for name, words in signs.items()}
    return ", ".join(f"{words} {value}" for words, value in found.items() if value is not None and value < FITS)
