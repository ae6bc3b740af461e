"""Tables of the audit's rules within pages, from the rules' records: `python -m tools.pages.rules PAGE…`.

A table between `<!-- rules AC012 to AC016: meaning -->` and `<!-- end of rules -->` has these rules, and this field of
their records. `<!-- rules: advice -->` has all rules.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from agentcho.audit.rules import RULES

TABLE = re.compile(
    r"(?P<begin><!-- rules(?: (?P<first>AC\d+) to (?P<last>AC\d+))?: (?P<field>meaning|advice) -->\n)"
    r".*?(?P<end><!-- end of rules -->)",
    re.DOTALL,
)


def with_rules(page: str) -> str:
    """The page with the current rules between its marks."""
    return TABLE.sub(_table, page)


def _table(found: re.Match[str]) -> str:
    field = found["field"]
    head = {"meaning": "what a finding means", "advice": "what to do"}[field]
    rows = [
        f"| {rule.code} | {rule.level} | {rule.title} | {getattr(rule, field)} |\n"
        for rule in RULES.values()
        if (found["first"] or "") <= rule.code <= (found["last"] or rule.code)
    ]
    lines = [f"| rule | level | | {head} |\n", "| --- | --- | --- | --- |\n", *rows]
    return found["begin"] + "".join(lines) + found["end"]


def main() -> None:
    """Rewrite each page."""
    parser = argparse.ArgumentParser(description="Write the rules of the audit into pages that list them.")
    parser.add_argument("pages", type=Path, nargs="+")
    for page in parser.parse_args().pages:
        page.write_text(with_rules(page.read_text()))


if __name__ == "__main__":
    main()
